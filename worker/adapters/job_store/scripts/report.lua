-- The breaker of one endpoint: opens after breaker_faults faults in a row, for a growing time; one success closes it.
local name = key('breaker', a.endpoint)
redis.call('SADD', key('endpoints'), a.endpoint)
local b = read_hash(name) or {}
if a.ok then
  redis.call('DEL', name)
  if num(b, 'open_until') > 0 then wake_waiters('endpoint:' .. a.endpoint, a.cap) end
  return cjson.encode({ ok = true })
end
count('endpoint_faults')
if num(b, 'open_until') > now then return cjson.encode({ ok = true }) end
local faults = num(b, 'faults') + 1
redis.call('HSET', name, 'faults', text(faults))
if faults >= a.breaker_faults or num(b, 'open_until') > 0 then
  local opens = num(b, 'opens')
  local open_s = math.min(a.breaker_base_s * 2 ^ math.min(opens, 20), a.breaker_max_s)
  redis.call('HSET', name, 'open_until', text(now + open_s), 'opens', text(opens + 1))
  redis.call('HDEL', name, 'probe', 'probe_until')
  count('breaker_opened')
end
return cjson.encode({ ok = true })
