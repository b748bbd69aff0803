# Every target works on a fresh machine with python3, pip and make: it makes .venv first if it is not there.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.ready

.PHONY: demo test test-slow test-lowest coverage fuzz lint docs dist bench maros throughput latency networks training front-door real designs ablation certificates parameters stream growth layers evidence clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade 'pip>=25.1'
	$(RUN) -m pip install --quiet --editable '.[demo]' --group dev
	@touch $(READY)

demo: $(READY)          ## run the main job on a built-in problem; pictures go to out/demo
	$(VENV)/bin/longstep demo --out out/demo

test: $(READY)          ## the default tests: some minutes on 2 cores, longer the first time
	$(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow'

test-slow: $(READY)     ## all other tests, and those that take minutes (an hour)
	$(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow

coverage: $(READY)      ## lines and branches that the default tests run
	$(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow' --cov --cov-report=term

fuzz: $(READY)          ## random bad input, files, exports and problems, for two minutes; SECONDS=600 SEED=1 for others
	$(RUN) -m tests.fuzz --seconds $(or $(SECONDS),120) --seed $(or $(SEED),0)

test-lowest:            ## the default tests with the oldest dependencies that pyproject.toml allows
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	VIRTUAL_ENV=.venv-lowest .venv-lowest/bin/uv pip install --quiet --resolution lowest-direct --editable .
	VIRTUAL_ENV=.venv-lowest .venv-lowest/bin/uv pip install --quiet cvxpy osqp scs PEPit matplotlib pyarrow pytest pytest-xdist hypothesis beartype
	.venv-lowest/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow'

lint: $(READY)          ## ruff and pyright
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright

docs: $(READY)          ## the documentation site, into out/docs
	$(RUN) -m pip install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --site-dir out/docs

dist: $(READY)          ## sdist and wheel for a package index, checked, into dist
	$(RUN) -m pip install --quiet --group dist
	rm -rf dist
	$(RUN) -m build
	$(RUN) -m twine check --strict dist/*

bench: maros throughput latency parameters training networks certificates ## all measured comparisons; JSON goes to out/benchmarks

maros: $(READY)         ## Maros-Meszaros QPs against the osqp package
	$(RUN) benchmarks/maros.py

training: $(READY)      ## what learning gives and costs, on all families (half an hour)
	$(RUN) benchmarks/training.py

front-door: $(READY)    ## what learn gives on twelve families that nothing was tuned on (half an hour)
	$(RUN) benchmarks/front_door.py

real: $(READY)          ## what learn gives on ten families of real data, which come with other packages (half an hour)
	test -d out/packages || $(RUN) -m pip install --quiet --no-deps --target out/packages skfolio==1.12.2 simbench==1.6.3 pypower==5.1.21 vega-datasets==0.9.0
	$(RUN) benchmarks/real.py

designs: $(READY)       ## form, metric, schedule and ladder, each beside the others, on some families (an hour)
	$(RUN) benchmarks/designs.py

ablation: $(READY)      ## what every rule of training is worth, on six small families (an hour)
	$(RUN) benchmarks/ablation.py

certificates: $(READY)  ## certificates on lasso, MPC and deblurring against further test instances
	$(RUN) benchmarks/certificates.py

parameters: $(READY)    ## what a new parameter costs: CVXPY, the osqp package, longstep
	$(RUN) benchmarks/parameters.py

throughput: $(READY)    ## batches of quadcopter MPC against a loop over the osqp package and the machine's peak
	$(RUN) benchmarks/throughput.py

stream: $(READY)        ## ten million small instances through files, beside the plain batch (some minutes)
	$(RUN) benchmarks/stream.py

growth: $(READY)        ## cost by size, a thousand and ten thousand unknowns with sparse factors, beside OSQP (half an hour)
	$(RUN) benchmarks/growth.py

latency: $(READY)       ## time to a given residual, one instance at a time: longstep in C against eight packages
	$(RUN) -m pip install --quiet --group bench
	$(RUN) benchmarks/latency.py

layers: $(READY)        ## batches with gradients against CVXPYlayers with diffcp
	$(RUN) -m pip install --quiet --editable '.[cvxpylayers]'
	$(RUN) benchmarks/layers.py

networks: $(READY)      ## how many instances networks need beside a learned schedule
	$(RUN) benchmarks/networks.py

evidence: $(READY)      ## measures all that the texts claim, and fails where it does not hold (a day); QUICK=1: 20 minutes
	$(RUN) -m pip install --quiet --group bench
	$(RUN) -m evidence $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV) .venv-lowest out .pytest_cache .ruff_cache .hypothesis .coverage
