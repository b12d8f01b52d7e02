-- Trim a stream up to what every group has acknowledged, and forget our group's consumers that are long gone.
-- KEYS[1] stream; ARGV[1] our group, ARGV[2] idle time (ms) after which a consumer without entries is forgotten.
-- One script: a consumer that comes back between the look and the deletion would lose its entries.
local function fields(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end

local function before(one, other)
  local ms1, seq1 = string.match(one, '^(%d+)-(%d+)$')
  local ms2, seq2 = string.match(other, '^(%d+)-(%d+)$')
  if ms1 ~= ms2 then return tonumber(ms1) < tonumber(ms2) end
  return tonumber(seq1) < tonumber(seq2)
end

if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local floor = nil
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = fields(flat)
  local low = group['last-delivered-id']
  if group['pending'] > 0 then low = redis.call('XPENDING', KEYS[1], group['name'])[2] end
  if not floor or before(low, floor) then floor = low end
  if group['name'] == ARGV[1] then
    for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
      local consumer = fields(row)
      if consumer['pending'] == 0 and consumer['idle'] > tonumber(ARGV[2]) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer['name'])
      end
    end
  end
end
if not floor then return 0 end
return redis.call('XTRIM', KEYS[1], 'MINID', floor)
