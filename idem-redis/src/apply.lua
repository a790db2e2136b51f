-- Compares and applies: every write but those of `create.lua`. It holds no policy.
--
-- KEYS and ARGV: see `Commit` in script.rs, which fills them in, in this order.
local argv, record = ARGV, KEYS[1]
-- It comes back. Its first digits are the time after which nothing may come into force any more.
local question = argv[1]
local change, expected, live_until, token_floor = argv[2], argv[3], argv[4], argv[5]
local created_at, life, keep, token, rest = argv[6], argv[7], argv[8], argv[9], argv[10]
local grace, reads, writes = argv[11], argv[12], argv[13]

local time = redis.call('TIME')
-- Numbers are doubles: what goes into text or back is below 2^53, or is never made a number.
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)

-- A request that was on its way for too long may have been given up. Both begin with thirteen digits: so they
-- compare as texts.
if now > question then
  return question .. ' late ' .. now
end

local function text(number)
  return string.format('%.0f', number)
end

-- `read` says which of the reads has changed, counted from 0; nothing if it is the record.
local function stale(read)
  return { question .. ' stale ' .. now, 0, redis.call('GET', record), read }
end

local argument = 13
local function next_argument()
  argument = argument + 1
  return argv[argument]
end

for index = 1, #reads do
  local value = redis.call('GET', KEYS[2 + index])
  if string.sub(reads, index, index) == '1' then
    if value ~= next_argument() then return stale(index - 1) end
  elseif value then
    return stale(index - 1)
  end
end

if live_until ~= '' and tonumber(now) >= tonumber(live_until) then
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
    return question .. ' damaged ' .. now
  end
  -- None is left to count to: compared as text, which is exact.
  if last and (#last > 19 or #last == 19 and last >= '9223372036854775807') then
    return question .. ' damaged ' .. now
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

if change == 'set' then
  if created_at == '' then created_at = now end
  -- An end that goes by the commit's time; the start is far from either end of time then.
  if string.sub(life, 1, 1) == '+' then
    life = text(tonumber(now) + tonumber(string.sub(life, 2)))
  end
  local stamp = table.concat({ version, created_at, created_at, life, life, token, token, rest }, ' ')
  local set = { 'SET', record, stamp }
  if by_set then set[#set + 1] = 'NX' end
  local stays
  if token == '-' then
    stays = tonumber(life)
  elseif keep ~= '-' then
    -- Never from before the claim, whatever a clock that was set back says of the end.
    stays = math.max(tonumber(life), 0) + tonumber(keep)
  end
  if stays and grace ~= '' then
    local gone_at = tonumber(created_at) + stays + tonumber(grace)
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

return { question .. ' done ' .. now, token }
