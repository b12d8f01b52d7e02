-- Failed for good: the failure is noted and the job goes to publish, which tells it.
local h = load(a.task_id)
if already_did(h, 'fail') then return cjson.encode({ ok = true }) end
if not held(h) then return fenced() end
observe('stage_ms', h.stage, now - num(h, 'claimed_at'))
fail_to_publish(h, a.failure)
put(h, { released = 'fail' })
count('failures')
return cjson.encode({ ok = true })
