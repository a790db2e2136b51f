-- The most frequent commit: receipts under free keys, with values to put. `apply.lua` could do it too, in twice
-- the time. Each entry holds or is refused alone.
--
-- KEYS and ARGV: see `Create` in create.rs, which fills them in, in this order.
local keys, argv = KEYS, ARGV
-- It comes back. Its first digits are the time after which nothing may come into force any more, then follows a
-- character for each entry, by which it is told how many values the entry puts.
local question = argv[1]
local redis, byte = redis, string.byte

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)

-- Both begin with thirteen digits: so they compare as texts.
if now > question then
  return question .. ' late ' .. now
end

local key, argument, entry, refused = 1, 2, 0, nil
repeat
  local name, record, life = keys[key], argv[argument], argv[argument + 1]
  -- One that begins with its life is to be stamped.
  if byte(record) == 32 then
    record = version .. ' ' .. now .. ' ' .. now .. record
  end
  local created
  if life == '' then
    created = redis.call('SET', name, record, 'NX')
  else
    created = redis.call('SET', name, record, 'NX', 'PX', life)
  end
  local puts = byte(question, 14 + entry) - 48
  if created then
    for put = 1, puts do
      redis.call('SET', keys[key + put], argv[argument + 1 + put])
    end
  else
    -- What cannot be read is an error of this entry alone.
    refused = refused or { question .. ' stale ' .. now }
    refused[#refused + 1] = entry
    refused[#refused + 1] = redis.pcall('GET', name)
  end
  key, argument, entry = key + 1 + puts, argument + 2 + puts, entry + 1
until not keys[key]

return refused or question .. ' done ' .. now
