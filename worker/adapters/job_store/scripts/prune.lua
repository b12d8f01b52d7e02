-- Forget jobs that ended long ago; what stays is the tombstone that knows a late repeat.
local out = {}
for _, state in ipairs({ 'done', 'failed', 'cancelled' }) do
  local ids = redis.call('ZRANGEBYSCORE', key('state', state), '-inf', now - a.older_than_s, 'LIMIT', 0, a.limit - #out)
  for _, id in ipairs(ids) do
    local h = load(id) or {}
    local tomb = key('tomb', id)
    redis.call('HSET', tomb, 'task_id', id, 'digest', h.digest or '', 'commit_id', h.commit_id or '', 'state', state,
      'stage', h.stage or a.publish_stage, 'skill', h.skill or '', 'code', h.code or '', 'pruned', '1',
      'result_file', h.result_file or '', 'more_result_files', h.more_result_files or '[]',
      'generation', h.generation or '0', 'epoch', h.epoch or '0', 'created', h.created or '0', 'finished', h.finished or '0')
    redis.call('EXPIRE', tomb, math.floor(a.tombstone_s))
    redis.call('DEL', key('job', id))
    redis.call('ZREM', key('state', state), id)
    redis.call('ZREM', key('deadjobs'), id)
    out[#out + 1] = id
  end
  if #out >= a.limit then break end
end
if #out > 0 then count('pruned', #out) end
return cjson.encode({ ids = out })
