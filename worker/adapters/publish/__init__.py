"""Where results go: the payload's ``resultFile``, and (with Redis) the stream of results."""
