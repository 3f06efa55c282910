# Targets are listed by `make`. Variables: DIR (scenario files or folders), PROXY (kube-ipvs, kube-proxy or a path),
# REPORT (a Markdown file to write), SLOW (a factor for the scenarios' times), LAB (uml, qemu or native), MANIFESTS (a folder for the demo).

SHELL       := /bin/bash
GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Scenarios that stand beside the project are run from where they are, unless the project has taken them over.
beside := $(wildcard ../shared/scenarios/*.yaml)
DIR ?= e2e/scenarios $(foreach f,$(beside),$(if $(wildcard e2e/scenarios/$(notdir $f)),,$f))

# The dozen that runs on the stock kernel too.
DOZEN := clusterip-spreads-and-keeps-pod-source nodeport-on-every-node external-ip-from-everywhere \
	loadbalancer-vip-is-served-and-moved no-endpoints-refused-at-once hairpin-through-every-address \
	affinity-clientip-sticks-and-moves-on host-ports-closed-on-service-addresses drain-keeps-open-connections \
	udp-flow-follows-replaced-pod etp-local-serves-cluster-clients-everywhere source-ranges-admit-only-the-listed

PACKAGES := user-mode-linux etcd-server iproute2 iptables ipset ipvsadm conntrack socat iputils-ping iputils-arping \
	curl nftables kmod procps
ifeq ($(LAB),qemu)
PACKAGES += qemu-system-x86
endif

export LAB PROXY REPORT SLOW
lab := CGO_ENABLED=0 $(GO) build -buildvcs=false -o bin/lab ./e2e/cmd/lab && exec bin/lab

.PHONY: help build deps test unit contract scenarios demo qemu lint clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

build: ## build bin/kube-ipvs
	CGO_ENABLED=0 $(GO) build -o bin/kube-ipvs ./cmd/kube-ipvs

deps: ## install the Debian packages that the lab needs and are missing
	@missing=$$(for p in $(PACKAGES); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "installing $$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

test: deps ## run unit tests, kernel tests and scenarios; the last line is the total
	@$(lab) test $(DIR)

unit: ## run the tests that need no kernel
	@$(lab) unit

contract: deps ## run the packages' kernel tests in the lab
	@$(lab) contract

scenarios: deps ## run scenario files in the lab (DIR, PROXY, REPORT, SLOW, LAB)
	@$(lab) scenarios $(DIR)

demo: deps ## show the proxy at work on a small cluster in the lab (MANIFESTS=folder for your own)
	@$(lab) demo $(MANIFESTS)

qemu: ## the demo and a dozen scenarios on the stock kernel with iptables-nft (software emulation: slow)
	@$(MAKE) --no-print-directory demo LAB=qemu
	@$(MAKE) --no-print-directory scenarios LAB=qemu SLOW=4 DIR="$(addprefix e2e/scenarios/,$(addsuffix .yaml,$(DOZEN)))"

lint: ## gofmt, go vet and staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

clean: ## remove what was built here; the lab's cache stays
	rm -rf bin e2e/failures
