-- Record a job once: 'new', 'same' (equal content, also of a pruned job) or 'conflict' (nothing touched).
local function remember_result_file(h)
  if a.result_file == '' or a.result_file == h.result_file then return end
  local more = cjson.decode(h.more_result_files or '[]')
  for _, path in ipairs(more) do
    if path == a.result_file then return end
  end
  if #more >= a.max_result_files then return end
  more[#more + 1] = a.result_file
  put(h, { more_result_files = cjson.encode(more) })
end

local function create()
  local h = { task_id = a.task_id, lane = a.lane }
  put(h, { task_id = a.task_id, digest = a.digest, skill = a.skill, stage = a.first_stage, lane = a.lane, source = a.source,
    result_file = a.result_file, traceparent = a.traceparent, accept_token = a.token, deadline_s = a.deadline_s,
    created = now, deadline = now + a.deadline_s, stage_at = now, enqueued_at = now, woken_at = now,
    epoch = 0, attempt = 0, generation = 0, wakes = 0, held = '0', cancelled = '0' })
  join_lane(h)
  place(h, 'queued', now, now + a.stall_s)
  count('accepted')
  return h
end

local h = load(a.task_id)
local pruned = nil
if not h then pruned = read_hash(key('tomb', a.task_id)) end
local kind
if not h and not pruned then
  h = create()
  kind = 'new'
elseif h and h.accept_token == a.token then
  kind = 'new'
elseif (h or pruned).digest == a.digest then
  kind = 'same'
  count('duplicates')
  if h then remember_result_file(h) end
else
  kind = 'conflict'
  count('conflicts')
end
if a.ack and kind ~= 'conflict' and h and not OVER[h.state] then
  redis.call('XACK', a.ack.stream, a.ack.group, a.ack.entry_id)
end
return cjson.encode({ kind = kind, record = h or pruned })
