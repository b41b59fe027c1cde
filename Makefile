# make run    the counter example under `celld dev`
# make test   everything CI runs
# make build  bin/celld
