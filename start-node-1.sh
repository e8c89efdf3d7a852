cd /tmp/w/seams || exit 1
export OMP_NUM_THREADS=1
export OMP_TEST='it'"'"'s'
export PATH=/tmp/pytest-of-root/pytest-668/test_a_rank_that_fails_on_anot1/bin:/work/main/.venv/bin:/root/.cargo/bin:/root/.cargo/bin:/root/.pyenv/plugins/pyenv-virtualenv/shims:/root/.pyenv/shims:/root/.pyenv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=/tmp/w/seams/src
export PYTHONUNBUFFERED=1
exec /work/main/.venv/bin/python3 /tmp/w/seams/workflow/scripts/launch.py --nodes 2 --processes-per-node 1 --on-node 1 127.0.0.1 33595 -- /tmp/pytest-of-root/pytest-668/test_a_rank_that_fails_on_anot1/trainer.py /tmp/pytest-of-root/pytest-668/test_a_rank_that_fails_on_anot1
