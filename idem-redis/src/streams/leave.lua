-- Deletes a consumer from its group, unless something is pending with it: that would never be delivered again.
--
-- KEYS: the stream. ARGV: a nonce, which comes back; the group, the consumer.
local nonce, group, consumer = ARGV[1], ARGV[2], ARGV[3]
local stream = KEYS[1]

if redis.call('XPENDING', stream, group, '-', '+', 1, consumer)[1] then return { nonce, 'pending' } end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return { nonce, 'gone' }
