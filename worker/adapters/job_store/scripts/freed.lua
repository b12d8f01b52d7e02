-- Jobs announced by a release (next of a lane, waiter for a slot, cancelled, resumed). Marks them woken.
local out, seen = {}, {}
for _ = 1, a.limit do
  local task = redis.call('LPOP', key('freed'))
  if not task then break end
  local stage = not seen[task] and wake(task)
  seen[task] = true
  if stage then out[#out + 1] = { task, stage } end
end
return cjson.encode({ woken = out })
