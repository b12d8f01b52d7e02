-- The result is delivered: the job is over and the next of its lane is announced.
local h = load(a.task_id)
if already_did(h, 'finish') then return cjson.encode({ ok = true }) end
if not held(h) then return fenced() end
observe('stage_ms', h.stage, now - num(h, 'claimed_at'))
give_back(h)
put(h, { released = 'finish', code = a.code, commit_id = a.commit_id })
if h.files_seen ~= (h.more_result_files or '[]') then
  -- A repeat named another result file while this one was being delivered: deliver once more, the same bytes.
  enter(h, h.stage)
  place(h, 'queued', now, now + a.stall_s)
  announce(a.task_id)
  return cjson.encode({ ok = true })
end
local state = 'failed'
if a.success then state = 'done' elseif a.code == 'CANCELLED' then state = 'cancelled' end
leave_lane(h)
place_over(h, state)
count('finished/' .. state)
observe('job_ms', h.skill, now - num(h, 'created'))
if state == 'failed' then redis.call('ZADD', key('deadjobs'), now, a.task_id) end
return cjson.encode({ ok = true })
