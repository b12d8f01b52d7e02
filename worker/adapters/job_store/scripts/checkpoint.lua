-- The stage's artefact is written: on to the next stage, the lease given back.
local h = load(a.task_id)
local what = 'checkpoint:' .. a.next_stage
if already_did(h, what) then return cjson.encode({ ok = true }) end
if not held(h) then return fenced() end
observe('stage_ms', h.stage, now - num(h, 'claimed_at'))
give_back(h)
if a.next_stage == a.publish_stage and h.cancelled == '1' and not is_protected(h) and give_up(h) then
  put(h, { released = what }) -- no claim after this one asks any more: who cancelled was told that it is cancelled
  return cjson.encode({ ok = true })
end
enter(h, a.next_stage)
put(h, { released = what, code = '', error = '' })
place(h, 'queued', now, now + a.stall_s)
return cjson.encode({ ok = true })
