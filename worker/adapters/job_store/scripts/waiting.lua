-- Task ids that could be claimed at one stage now, oldest first.
return cjson.encode({ ids = redis.call('ZRANGEBYSCORE', key('stage', a.stage), '-inf', now, 'LIMIT', 0, a.limit) })
