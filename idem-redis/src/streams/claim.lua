-- Takes over what has been in flight for too long, and says how often each entry was delivered.
--
-- KEYS: the stream. ARGV: the group, the consumer, the visibility in milliseconds, where to begin, how many entries
-- to take at most, how many looks to take.
local group, consumer, visibility, cursor = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, looks = tonumber(ARGV[5]), tonumber(ARGV[6])
local stream = KEYS[1]

local taken = {}
local from_start = cursor == '0-0'
-- One look goes through ten times as many entries as it may take. Those that were deleted it drops.
for _ = 1, looks do
  local look = redis.call('XAUTOCLAIM', stream, group, consumer, visibility, cursor, 'COUNT', most - #taken)
  cursor = look[1]
  for _, entry in ipairs(look[2]) do
    local pending = redis.call('XPENDING', stream, group, entry[1], entry[1], 1)[1]
    taken[#taken + 1] = { entry[1], entry[2], pending[4] }
  end
  if #taken == most then break end
  if cursor == '0-0' then
    if from_start then break end
    from_start = true
  end
end
return { cursor, taken }
