-- Wish a job cancelled: at once when nobody works on it, else at the next renewal or claim.
local h = load(a.task_id)
if not h then return cjson.encode({ outcome = 'unknown' }) end
if OVER[h.state] then return cjson.encode({ outcome = 'over' }) end
if is_protected(h) then return cjson.encode({ outcome = 'too_late' }) end
put(h, { cancelled = '1' })
if not is_leased(h) and give_up(h) then announce(a.task_id) end
return cjson.encode({ outcome = 'requested' })
