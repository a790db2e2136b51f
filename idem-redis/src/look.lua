-- Reads the record, the named values and the time, all at one instant.
--
-- KEYS: the record, the values. ARGV: a question, which comes back.
local keys, redis = KEYS, redis
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)
local reply = { ARGV[1] .. ' seen ' .. now, redis.call('GET', keys[1]) }
for index = 2, #keys do
  reply[index + 1] = redis.call('GET', keys[index])
end
return reply
