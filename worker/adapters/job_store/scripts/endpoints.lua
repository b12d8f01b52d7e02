-- What holds each model endpoint's jobs back.
local out = {}
for _, endpoint in ipairs(redis.call('SMEMBERS', key('endpoints'))) do
  local b = read_hash(key('breaker', endpoint)) or {}
  out[#out + 1] = {
    endpoint = endpoint,
    in_flight = redis.call('ZCOUNT', key('slots', endpoint), '(' .. text(now), '+inf'),
    waiting = redis.call('ZCARD', key('wait', 'endpoint:' .. endpoint)),
    faults = num(b, 'faults'),
    open_until = num(b, 'open_until'),
    paused = redis.call('SISMEMBER', key('paused'), 'endpoint:' .. endpoint) == 1,
  }
end
table.sort(out, function(x, y) return x.endpoint < y.endpoint end)
return cjson.encode({ endpoints = out })
