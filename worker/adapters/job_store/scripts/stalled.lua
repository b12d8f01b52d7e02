-- Open jobs that are due: no live lease, not parked, not woken within the stall time. Marks them woken.
-- Free slots are offered to those who wait longest, so that a holder that died idles its slot for one round only.
local function offer_free_slots(endpoint)
  local slots = key('slots', endpoint)
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', now)
  local free = (a.caps[endpoint] or a.default_cap) - redis.call('ZCARD', slots)
  local open_until = tonumber(redis.call('HGET', key('breaker', endpoint), 'open_until') or '') or 0
  if free > 0 and open_until <= now and redis.call('SISMEMBER', key('paused'), 'endpoint:' .. endpoint) == 0 then
    wake_waiters('endpoint:' .. endpoint, free)
  end
end

for _, endpoint in ipairs(redis.call('SMEMBERS', key('endpoints'))) do offer_free_slots(endpoint) end
local out = {}
for _, task in ipairs(redis.call('ZRANGEBYSCORE', key('due'), '-inf', now, 'LIMIT', 0, a.limit)) do
  local stage = wake(task)
  if stage then out[#out + 1] = { task, stage } end
end
return cjson.encode({ woken = out })
