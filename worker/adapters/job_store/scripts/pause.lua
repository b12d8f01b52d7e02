-- Hold back or let go everything behind one gate (queue:<name> or endpoint:<url>).
if a.on then
  redis.call('SADD', key('paused'), a.gate)
else
  redis.call('SREM', key('paused'), a.gate)
  wake_waiters(a.gate, a.limit)
end
return cjson.encode({ ok = true })
