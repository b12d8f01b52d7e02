-- The same stage again later; an attempt that was not the job's fault (a worker that shuts down) may be uncounted.
local h = load(a.task_id)
if already_did(h, 'park') then return cjson.encode({ ok = true }) end
if not held(h) then return fenced() end
give_back(h)
local till = now + math.max(0, a.delay_s)
local attempt = num(h, 'attempt')
if not a.counted then attempt = math.max(0, attempt - 1) end
put(h, { released = 'park', parked_until = till, attempt = attempt, code = a.code, error = a.reason, enqueued_at = till })
place(h, 'parked', till, till)
count('parks')
return cjson.encode({ ok = true })
