-- Take the lease of one stage and count the attempt, or say why not.
local h = load(a.task_id)

local function refuse(reason, till)
  count('refused/' .. reason)
  return cjson.encode({ refused = reason, till = text(till or 0) })
end

-- Blocked by something outside the job: it stays queued, holds no worker, and is announced when the gate opens.
local function block(reason, gate, till, due_at)
  stop_waiting(h)
  put(h, { blocked = reason, blocked_by = gate, blocked_until = till, blocked_at = now })
  if reason ~= 'order' then redis.call('ZADD', key('wait', gate), h.stage_at, a.task_id) end
  set_due(h, math.max(due_at, next_look(h)))
  return refuse(reason, till)
end

local function paused_gate()
  local gates = { 'queue:' .. (a.queue or ''), 'endpoint:' .. a.endpoint }
  for _, gate in ipairs(gates) do
    if redis.call('SISMEMBER', key('paused'), gate) == 1 then return gate end
  end
  return nil
end

-- nil when the endpoint may be called; else the refusal. An opened breaker lets one probe through after its time.
local function endpoint_refusal()
  local gate = 'endpoint:' .. a.endpoint
  redis.call('SADD', key('endpoints'), a.endpoint)
  local b = read_hash(key('breaker', a.endpoint)) or {}
  local open_until = num(b, 'open_until')
  if open_until > now then return block('breaker', gate, open_until, open_until) end
  if open_until > 0 and b.probe and b.probe ~= a.task_id and num(b, 'probe_until') > now then
    return block('breaker', gate, num(b, 'probe_until'), num(b, 'probe_until'))
  end
  redis.call('ZREMRANGEBYSCORE', key('slots', a.endpoint), '-inf', now)
  redis.call('ZREM', key('slots', a.endpoint), a.task_id)
  if redis.call('ZCARD', key('slots', a.endpoint)) >= a.cap then
    local first = redis.call('ZRANGE', key('slots', a.endpoint), 0, 0, 'WITHSCORES')
    local expires = tonumber(first[2] or '') or now
    return block('cap', gate, expires, expires)
  end
  if open_until > 0 then
    redis.call('HSET', key('breaker', a.endpoint), 'probe', a.task_id, 'probe_until', text(now + a.lease_s))
  end
  redis.call('ZADD', key('slots', a.endpoint), now + a.lease_s, a.task_id)
  return nil
end

local function granted()
  return cjson.encode({ claim = h, max_attempts = limit_of(h.stage) })
end

if not h then return refuse('unknown') end
if OVER[h.state] then return refuse('over') end
if h.stage ~= a.stage then return refuse('stage') end
if is_leased(h) then
  if h.claim_token == a.token then return granted() end
  return refuse('leased', num(h, 'lease_until'))
end
if give_up(h) then return refuse('to_publish') end
if num(h, 'parked_until') > now then return refuse('parked', num(h, 'parked_until')) end
if h.stage ~= a.publish_stage then
  local blocker = blocker_in_lane(h)
  if blocker then return block('order', blocker, 0, now + a.lane_patience_s) end
end
local pause = paused_gate()
if pause then return block('paused', pause, 0, now + a.stall_max_s) end
if h.held == '1' then
  count('leases_expired')
  give_back(h)
end
if a.endpoint ~= '' then
  local refusal = endpoint_refusal()
  if refusal then return refusal end
end

stop_waiting(h)
put(h, UNBLOCKED)
observe('wait_ms', h.stage, now - num(h, 'enqueued_at'))
local lease_until = now + a.lease_s
put(h, { epoch = num(h, 'epoch') + 1, attempt = num(h, 'attempt') + 1, held = '1', lease_until = lease_until,
  worker = a.worker, endpoint = a.endpoint, claim_token = a.token, claimed_at = now, parked_until = 0, wakes = 0,
  files_seen = h.more_result_files or '[]' })
if h.stage == a.commit_stage then put(h, { commit_begun = '1' }) end
place(h, 'running', lease_until, lease_until)
count('claims')
redis.call('HSET', key('claimed'), a.queue or '', text(now))
return granted()
