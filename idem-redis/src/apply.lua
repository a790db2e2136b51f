-- Compares and applies: the one script that writes. It holds no policy.
--
-- KEYS and ARGV: see `Create` in create.rs and `Commit` in script.rs, which fill them in, in this order.
local argv = ARGV
local nonce, not_after, change = argv[1], argv[2], argv[3]

local time = redis.call('TIME')
-- Numbers are doubles: what goes into text or back is below 2^53, or is never made a number.
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)

-- A request that was on its way for too long may have been given up: it must not come into force any more.
if tonumber(now) > tonumber(not_after) then
  return { nonce, 'late', now }
end

local byte = string.byte

-- The checksum of a record: it goes on over the bytes of the stamp.
local function checksum_over(sum, stamp)
  local length = #stamp
  local rest = length % 10
  -- Four bytes at a time stay below 2^53.
  for index = 10, length, 10 do
    local a, b, c, d, e, f, g, h, i, j = byte(stamp, index - 9, index)
    sum = ((((sum * 31 + a) * 31 + b) * 31 + c) * 31 + d) % 4294967296
    sum = ((((sum * 31 + e) * 31 + f) * 31 + g) * 31 + h) % 4294967296
    sum = ((sum * 31 + i) * 31 + j) % 4294967296
  end
  for index = length - rest + 1, length do
    sum = (sum * 31 + byte(stamp, index)) % 4294967296
  end
  return string.format(' %08x ', sum)
end

-- The most frequent commit, which all that follows could do too, in twice the time: a receipt under a free key,
-- and values to put.
if change == 'create' then
  local record, gone, version, checksum, life = argv[4], argv[5], argv[6], argv[7], argv[8]
  -- One with a checksum is to be stamped. All numbers are below 10^14, and so become text without loss.
  if checksum ~= '' then
    local stamp = now .. ' - - -'
    if life ~= '' then
      stamp = now .. ' ' .. now + life .. ' - -'
      gone = now + gone
    end
    record = version .. checksum_over(checksum, stamp) .. stamp .. ' ' .. record
  end
  local created
  if gone == '' then
    created = redis.call('SET', KEYS[1], record, 'NX')
  else
    created = redis.call('SET', KEYS[1], record, 'NX', 'PXAT', gone)
  end
  if not created then
    return { nonce, 'stale', now, redis.call('GET', KEYS[1]) }
  end
  for index = 2, #KEYS do
    redis.call('SET', KEYS[index], argv[7 + index])
  end
  return nonce .. ' ' .. now
end

local expected, live_until, token_floor = argv[4], argv[5], argv[6]
local created_at, ends_at, keep_until, token = argv[7], argv[8], argv[9], argv[10]
local version, checksum, rest, grace = argv[11], argv[12], argv[13], argv[14]
local reads, writes = argv[15], argv[16]
local record = KEYS[1]

local function text(number)
  return string.format('%.0f', number)
end

local function stale()
  return { nonce, 'stale', now, redis.call('GET', record) }
end

local argument = 16
local function next_argument()
  argument = argument + 1
  return argv[argument]
end

for index = 1, #reads do
  local value = redis.call('GET', KEYS[2 + index])
  if string.sub(reads, index, index) == '1' then
    if value ~= next_argument() then return stale() end
  elseif value then
    return stale()
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
    return { nonce, 'damaged', now }
  end
  -- None is left to count to: compared as text, which is exact.
  if last and (#last > 19 or #last == 19 and last >= '9223372036854775807') then
    return { nonce, 'damaged', now }
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
    return text(tonumber(now) + tonumber(string.sub(moment, 2)))
  end
  return moment
end

if change == 'set' then
  ends_at, keep_until = instant(ends_at), instant(keep_until)
  local stamp = table.concat({ instant(created_at), ends_at, keep_until, token }, ' ')
  local head = version .. checksum_over(tonumber(checksum), stamp) .. stamp
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

return { nonce, 'done', now, token }
