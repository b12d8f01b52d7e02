-- Put back a job that Redis lost, as its folder tells it; a job that is known stays untouched.
if load(a.record.task_id) then return cjson.encode({ ok = false }) end
local r = a.record
local deadline = r.deadline > 0 and r.deadline or now + a.deadline_s
local h = { task_id = r.task_id, lane = r.lane }
put(h, { task_id = r.task_id, digest = r.digest, skill = r.skill, stage = r.stage, lane = r.lane, source = r.source,
  result_file = r.result_file, traceparent = r.traceparent, created = r.created > 0 and r.created or now, deadline = deadline,
  deadline_s = a.deadline_s, epoch = r.epoch + 1, attempt = r.attempt, generation = r.generation, code = r.code,
  error = r.error, failed_stage = r.failed_stage, retryable = r.retryable and '1' or '0', cancelled = r.cancelled and '1' or '0',
  commit_id = r.commit_id, stage_at = now, enqueued_at = now, woken_at = 0, wakes = 0, held = '0', released = 'restore' })
if #a.more_result_files > 0 then put(h, { more_result_files = cjson.encode(a.more_result_files) }) end
if a.commit_begun then put(h, { commit_begun = '1' }) end
if a.failure then put(h, { failure = cjson.encode(a.failure) }) end
if OVER[r.state] then
  place_over(h, r.state)
  if r.finished > 0 then
    redis.call('ZADD', key('state', r.state), r.finished, r.task_id)
    put(h, { finished = r.finished })
  end
  if r.state == 'failed' then redis.call('ZADD', key('deadjobs'), num(h, 'finished'), r.task_id) end
else
  join_lane(h)
  place(h, 'queued', now, now)
end
count('restored')
return cjson.encode({ ok = true })
