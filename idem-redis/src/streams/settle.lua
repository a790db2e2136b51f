-- Settles a delivery, or keeps it in flight, if it is in flight with that consumer in that attempt.
--
-- KEYS: the stream, and to set aside the stream of dead letters. ARGV: a nonce, which comes back; what to do; the
-- group, the consumer, the entry's id, the attempt; to give back, who holds what was given back; to set aside, why.
local nonce, action = ARGV[1], ARGV[2]
local group, consumer, id, attempt = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local stream = KEYS[1]

local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
if not pending then return { nonce, 'gone' } end
if pending[2] ~= consumer or pending[4] ~= tonumber(attempt) then return { nonce, 'elsewhere' } end

if action == 'extend' then
  local kept = redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
  -- It drops an entry that was deleted.
  if #kept == 0 then return { nonce, 'gone' } end
elseif action == 'give back' then
  -- As one that has been in flight since 1970: whoever looks next takes it over. JUSTID: it is no delivery.
  redis.call('XCLAIM', stream, group, ARGV[7], 0, id, 'TIME', 0, 'JUSTID')
else
  if action == 'set aside' then
    -- What is written stays written: a right that would be found lacking half way is asked for first.
    if not redis.acl_check_cmd('XACK', stream, group, id) then
      return redis.error_reply('NOPERM this user lacks the right to XACK')
    end
    local letter = {
      'XADD', KEYS[2], '*',
      'idem:reason', ARGV[7], 'idem:id', id, 'idem:group', group, 'idem:attempts', attempt,
    }
    -- None if it was deleted.
    local entry = redis.call('XRANGE', stream, id, id)[1]
    for _, part in ipairs(entry and entry[2] or {}) do
      letter[#letter + 1] = part
    end
    redis.call(unpack(letter))
  end
  redis.call('XACK', stream, group, id)
end
return { nonce, 'done' }
