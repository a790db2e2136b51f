-- Reads the record, the named values and the time, all at one instant.
--
-- KEYS: the record, the values. ARGV: a nonce, which comes back.
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)
local reply = { ARGV[1], now }
for index = 1, #KEYS do
  reply[#reply + 1] = redis.call('GET', KEYS[index])
end
return reply
