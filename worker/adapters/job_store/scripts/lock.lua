-- Take, lengthen (ttl_s > 0) or give back (ttl_s = 0) a named lease.
local name = key('lock', a.lock)
local owner = redis.call('GET', name)
if owner and owner ~= a.owner then return cjson.encode({ ok = false }) end
if a.ttl_s > 0 then
  redis.call('SET', name, a.owner, 'PX', math.max(1, math.floor(a.ttl_s * 1000)))
else
  redis.call('DEL', name)
end
return cjson.encode({ ok = true })
