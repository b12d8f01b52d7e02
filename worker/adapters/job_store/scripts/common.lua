-- Shared by all scripts: arguments, time, and the only functions that move a job between the index sets.
-- Every open job is in state:<state> (by creation), stage:<stage> (by when it may be claimed), due (by when the
-- reconciler shall look at it). A job that is over is only in state:<state> (by its end) and perhaps in deadjobs.
-- Keys are built from the prefix, so Redis Cluster is not supported.
local a = cjson.decode(ARGV[1])
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1000000

local OVER = { done = true, failed = true, cancelled = true }
local BUCKETS_MS = { 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 300000, 900000 }

local function key(...) return a.prefix .. table.concat({ ... }, ':') end
local function num(h, field) return tonumber(h[field] or '') or 0 end
local function count(name, by) redis.call('HINCRBY', key('counters'), name, by or 1) end

local function observe(name, stage, seconds)
  local ms = math.max(0, math.floor(seconds * 1000 + 0.5))
  local bucket = 'inf'
  for _, limit in ipairs(BUCKETS_MS) do
    if ms <= limit then bucket = string.format('%d', limit); break end
  end
  local base = name .. '/' .. stage .. '/'
  count(base .. 'sum', ms); count(base .. 'count'); count(base .. 'le/' .. bucket)
end

local function text(value)
  if type(value) ~= 'number' then return value end
  if value == math.floor(value) then return string.format('%d', value) end
  return string.format('%.6f', value)
end

local function read_hash(name)
  local flat = redis.call('HGETALL', name)
  if #flat == 0 then return nil end
  local h = {}
  for i = 1, #flat, 2 do h[flat[i]] = flat[i + 1] end
  return h
end

-- A damaged record (another hand's work) must not end the script of whoever meets it: the sweep is everybody's.
local function load(task)
  local h = read_hash(key('job', task))
  if h then h.task_id, h.created = task, h.created or text(now) end
  return h
end

local function put(h, changes)
  local args = {}
  for field, value in pairs(changes) do
    h[field] = text(value)
    args[#args + 1] = field
    args[#args + 1] = h[field]
  end
  redis.call('HSET', key('job', h.task_id), unpack(args))
end

local function is_leased(h) return h.held == '1' and num(h, 'lease_until') > now end

-- A commit that was begun is finished in spite of deadline and cancellation (CONTRACT §2, deadlineSeconds).
local function is_protected(h)
  return h.stage == a.publish_stage or (h.stage == a.commit_stage and h.commit_begun == '1')
end

-- due: never later than the deadline, so that a job which waits for something else still gets its error result.
local function set_due(h, at)
  local deadline = num(h, 'deadline')
  if not is_protected(h) and deadline > now and deadline < at then at = deadline end
  redis.call('ZADD', key('due'), at, h.task_id)
end

local function place(h, state, ready_at, due_at)
  if h.state ~= state then redis.call('ZREM', key('state', h.state or ''), h.task_id) end
  redis.call('ZADD', key('state', state), h.created, h.task_id)
  redis.call('ZADD', key('stage', h.stage), ready_at, h.task_id)
  put(h, { state = state, updated = now })
  set_due(h, due_at)
end

local function place_over(h, state)
  redis.call('ZREM', key('state', h.state or ''), h.task_id)
  redis.call('ZREM', key('stage', h.stage), h.task_id)
  redis.call('ZREM', key('due'), h.task_id)
  redis.call('ZADD', key('state', state), now, h.task_id)
  put(h, { state = state, updated = now, finished = now })
end

-- Ask for a wake-up at once; whoever calls `freed` next sends it, else the reconciler does.
local function announce(task)
  redis.call('RPUSH', key('freed'), task)
  redis.call('ZADD', key('due'), 'XX', now, task)
end

local function wake_waiters(gate, n)
  local ids = redis.call('ZRANGE', key('wait', gate), 0, n - 1)
  for _, id in ipairs(ids) do
    redis.call('ZREM', key('wait', gate), id)
    announce(id)
  end
end

local function stop_waiting(h)
  if (h.blocked_by or '') ~= '' then redis.call('ZREM', key('wait', h.blocked_by), h.task_id) end
end

local UNBLOCKED = { blocked = '', blocked_by = '', blocked_until = 0 }

local function enter(h, stage)
  redis.call('ZREM', key('stage', h.stage), h.task_id)
  stop_waiting(h)
  put(h, UNBLOCKED)
  put(h, { stage = stage, stage_at = now, enqueued_at = now, attempt = 0, parked_until = 0, wakes = 0, woken_at = now })
end

-- The lease ends, its endpoint's slot (and probe) with it.
local function give_back(h)
  local endpoint = h.endpoint or ''
  if endpoint ~= '' then
    redis.call('ZREM', key('slots', endpoint), h.task_id)
    if redis.call('HGET', key('breaker', endpoint), 'probe') == h.task_id then
      redis.call('HDEL', key('breaker', endpoint), 'probe', 'probe_until')
    end
    wake_waiters('endpoint:' .. endpoint, 1)
  end
  put(h, { held = '0', lease_until = 0, worker = '', endpoint = '', wakes = 0 })
end

-- Compare-and-set: the caller still holds the lease it was given. A lease that ran out but was taken by nobody
-- still counts: the epoch alone decides.
local function held(h)
  return h and h.held == '1' and h.stage == a.stage and num(h, 'epoch') == a.epoch
end

-- A repeated call whose first answer was lost on the way is recognised by what it did.
local function already_did(h, what)
  return h and num(h, 'epoch') == a.epoch and h.held == '0' and h.released == what
end

local function fenced()
  count('fenced')
  return cjson.encode({ ok = false })
end

local function fail_to_publish(h, failure)
  if h.held == '1' then give_back(h) end
  put(h, { failure = cjson.encode(failure), failed_stage = h.stage, code = failure.code, error = failure.en,
    retryable = failure.retryable and '1' or '0' })
  enter(h, a.publish_stage)
  place(h, 'queued', now, now + a.stall_s)
end

local function fill(template, values)
  return (template:gsub('{(%w+)}', function(name) return values[name] end))
end

local function limit_of(stage) return a.stage_attempts[stage] or a.max_attempts end

-- Cancelled, past its deadline or out of attempts: the job goes to publish with that failure. True when it did.
local function give_up(h)
  if h.stage == a.publish_stage then return false end
  local code = nil
  if not is_protected(h) then
    if h.cancelled == '1' then code = 'CANCELLED'
    elseif num(h, 'deadline') <= now then code = 'DEADLINE' end
  end
  if not code and num(h, 'attempt') >= limit_of(h.stage) then code = 'EXHAUSTED' end
  if not code then return false end
  local last, last_zh = '', ''
  if (h.code or '') ~= '' then
    last = '; last error: ' .. h.code .. ' ' .. (h.error or '')
    last_zh = '（最近一次错误：' .. h.code .. '）'
  end
  local words = { task = h.task_id, stage = h.stage, attempts = h.attempt, last = last, lastzh = last_zh }
  local texts = a.texts[code]
  count('given_up/' .. code)
  fail_to_publish(h, { code = code, en = fill(texts.en, words), zh = fill(texts.zh, words), retryable = texts.retryable })
  return true
end

local function leave_lane(h)
  local lane = h.lane or ''
  if lane == '' then return end
  redis.call('ZREM', key('lane', lane), h.task_id)
  for _, id in ipairs(redis.call('ZRANGE', key('lane', lane), 0, 9)) do
    local other = load(id)
    if other and other.state == 'queued' and not is_leased(other) then announce(id); return end
  end
end

local function join_lane(h)
  if h.lane ~= '' then redis.call('ZADD', key('lane', h.lane), redis.call('INCR', key('seq')), h.task_id) end
end

-- The job in front of h in its lane that must end first, or nil. A head that has stood parked (or before an open
-- breaker or a pause) at one stage for longer than lane_patience_s is passed over.
local function blocker_in_lane(h)
  local lane = h.lane or ''
  if lane == '' then return nil end
  local ids = redis.call('ZRANGE', key('lane', lane), 0, 49)
  for _, id in ipairs(ids) do
    if id == h.task_id then return nil end
    local other = load(id)
    if not other then
      redis.call('ZREM', key('lane', lane), id)
    else
      local stuck = other.state == 'parked' or other.blocked == 'breaker' or other.blocked == 'paused'
      if not (stuck and not is_leased(other) and now - num(other, 'stage_at') > a.lane_patience_s) then return id end
    end
  end
  return ids[#ids]
end

-- Back-off of wake-ups: a long queue is not flooded with copies, a lost message is mended in stall_s.
local function next_look(h)
  return now + math.min(a.stall_s * 2 ^ math.min(num(h, 'wakes'), 20), a.stall_max_s)
end

-- One open job looked at by the reconciler or after `announce`: returns the stage to wake, or nil.
local function wake(task)
  local h = load(task)
  if not h or OVER[h.state] then
    redis.call('ZREM', key('due'), task)
    return nil
  end
  if is_leased(h) then
    set_due(h, num(h, 'lease_until'))
    return nil
  end
  if h.held == '1' and h.state == 'running' then
    count('leases_expired')
    place(h, 'queued', now, now)
  end
  if not give_up(h) and num(h, 'parked_until') > now then
    set_due(h, num(h, 'parked_until'))
    return nil
  end
  if h.state == 'parked' then
    put(h, { parked_until = 0, enqueued_at = now })
    place(h, 'queued', now, now)
  end
  count('wakes')
  redis.call('HINCRBY', key('job', task), 'wakes', 1)
  set_due(h, next_look(h))
  put(h, { woken_at = now })
  return h.stage
end
