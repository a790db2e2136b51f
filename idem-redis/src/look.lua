-- Reads the record, the named values and the time, all at one instant.
--
-- KEYS: the record, the values. ARGV: a nonce, which comes back.
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local reply = { ARGV[1], now }
for index = 1, #KEYS do
  reply[#reply + 1] = redis.call('GET', KEYS[index])
end
return reply
