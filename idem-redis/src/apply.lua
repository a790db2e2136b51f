-- Compares and applies: the one script that writes. It holds no policy.
--
-- KEYS: the record, the tenant's last token, the values that were read, the values to write.
-- ARGV: see `Commit` in script.rs, which fills them in, in this order.
local nonce, not_after, expected, live_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local change, token_floor, created_at, ends_at = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local keep_until, token, checksum, rest, grace = ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local reads, writes, version = ARGV[14], ARGV[15], ARGV[16]
local record = KEYS[1]

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Numbers are doubles: what goes into text or back is below 2^53, or is never made a number.
local function text(number)
  return string.format('%.0f', number)
end

-- A request that was on its way for too long may have been given up: it must not come into force any more.
if now > tonumber(not_after) then
  return { nonce, 'late', text(now) }
end

local function stale()
  return { nonce, 'stale', text(now), redis.call('GET', record) }
end

local argument = #ARGV - select(2, string.gsub(reads .. writes, '1', ''))
local function next_argument()
  argument = argument + 1
  return ARGV[argument]
end

for index = 1, #reads do
  local value = redis.call('GET', KEYS[2 + index])
  if string.sub(reads, index, index) == '1' then
    if value ~= next_argument() then return stale() end
  elseif value then
    return stale()
  end
end

if live_until ~= '' and now >= tonumber(live_until) then
  return stale()
end

-- A free key that needs no token is compared by SET NX itself.
local by_set = change == 'set' and expected == '' and token ~= 'next'
if not by_set then
  if expected == '' then
    if redis.call('EXISTS', record) == 1 then return stale() end
  elseif redis.call('GETRANGE', record, 0, #expected - 1) ~= expected then
    return stale()
  end
end

-- What is written stays written: a right that would be found lacking half way is asked for first.
local sets = change == 'set' or string.find(writes, '1', 1, true)
local deletes = change == 'remove' or string.find(writes, '0', 1, true)
if sets and deletes then
  if not redis.acl_check_cmd('SET', record, '') or not redis.acl_check_cmd('DEL', record) then
    return redis.error_reply('NOPERM this user lacks the right to SET, or to DEL')
  end
end

if token == 'next' then
  local last = redis.call('GET', KEYS[2])
  if last and not (last == '0' or string.match(last, '^[1-9]%d*$')) then
    return { nonce, 'damaged', text(now) }
  end
  -- None is left to count to: compared as text, which is exact.
  if last and (#last > 19 or #last == 19 and last >= '9223372036854775807') then
    return { nonce, 'damaged', text(now) }
  end
  if token_floor == '' then
    token_floor = time[1] .. string.format('%06d', tonumber(time[2]))
  end
  if last and tonumber(last) >= tonumber(token_floor) then
    redis.call('INCR', KEYS[2])
  else
    redis.call('SET', KEYS[2], token_floor)
  end
  -- As text: the reply of INCR would be a double.
  token = redis.call('GET', KEYS[2])
end

local function instant(moment)
  if string.sub(moment, 1, 1) == '+' then
    return text(now + tonumber(string.sub(moment, 2)))
  end
  return moment
end

if change == 'set' then
  ends_at, keep_until = instant(ends_at), instant(keep_until)
  local stamp = table.concat({ instant(created_at), ends_at, keep_until, token }, ' ')
  local sum = tonumber(checksum)
  for index = 1, #stamp do
    sum = (sum * 31 + string.byte(stamp, index)) % 4294967296
  end
  local head = version .. string.format(' %08x ', sum) .. stamp
  local set = { 'SET', record, head .. ' ' .. rest }
  if by_set then set[#set + 1] = 'NX' end
  local gone_at
  if token == '-' then
    gone_at = tonumber(ends_at)
  elseif keep_until ~= '-' then
    gone_at = math.max(tonumber(ends_at), tonumber(keep_until))
  end
  if gone_at and grace ~= '' then
    gone_at = gone_at + tonumber(grace)
    -- What the server cannot count to stays until it is purged.
    if gone_at > 0 and gone_at < 9007199254740992 then
      set[#set + 1] = 'PXAT'
      set[#set + 1] = text(gone_at)
    end
  end
  if not redis.call(unpack(set)) then return stale() end
elseif change == 'remove' then
  redis.call('DEL', record)
end

for index = 1, #writes do
  local name = KEYS[2 + #reads + index]
  if string.sub(writes, index, index) == '1' then
    redis.call('SET', name, next_argument())
  else
    redis.call('DEL', name)
  end
end

return { nonce, 'done', text(now), token }
