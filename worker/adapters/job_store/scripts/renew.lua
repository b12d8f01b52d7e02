-- Lengthen the lease while the epoch is ours and nobody cancelled. A slot that ran out is taken anew, or the lease is lost.
local h = load(a.task_id)
if not held(h) then return fenced() end
if h.cancelled == '1' and not is_protected(h) and give_up(h) then
  announce(a.task_id) -- its worker stops at this answer; the error result need not wait for the lease to end
  return cjson.encode({ ok = false })
end
local lease_until = now + a.lease_s
local endpoint = h.endpoint or ''
if endpoint ~= '' then
  local slots = key('slots', endpoint)
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', now)
  if not redis.call('ZSCORE', slots, a.task_id) and redis.call('ZCARD', slots) >= (a.caps[endpoint] or a.default_cap) then return fenced() end
  redis.call('ZADD', slots, lease_until, a.task_id)
  if redis.call('HGET', key('breaker', endpoint), 'probe') == a.task_id then
    redis.call('HSET', key('breaker', endpoint), 'probe_until', text(lease_until))
  end
end
put(h, { lease_until = lease_until })
place(h, 'running', lease_until, lease_until)
return cjson.encode({ ok = true })
