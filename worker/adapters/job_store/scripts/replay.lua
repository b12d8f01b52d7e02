-- A new generation from a stage. The epoch goes on, so that workers of the old generation stay fenced.
local h = load(a.task_id)
if not h then return cjson.encode({ outcome = 'unknown' }) end
if not OVER[h.state] and not a.force then return cjson.encode({ outcome = 'open' }) end
if h.held == '1' then give_back(h) end
if OVER[h.state] then
  join_lane(h)
  redis.call('ZREM', key('deadjobs'), a.task_id)
end
local deadline_s = a.deadline_s > 0 and a.deadline_s or num(h, 'deadline_s')
enter(h, a.stage)
redis.call('HDEL', key('job', a.task_id), 'failure', 'failed_stage', 'commit_begun', 'finished', 'claim_token')
h.commit_begun = nil
put(h, { generation = num(h, 'generation') + 1, epoch = num(h, 'epoch') + 1, cancelled = '0', code = '', error = '',
  retryable = '0', released = 'replay', deadline_s = deadline_s, deadline = now + deadline_s })
place(h, 'queued', now, now + a.stall_s)
count('replays')
return cjson.encode({ outcome = 'replayed', record = load(a.task_id) })
