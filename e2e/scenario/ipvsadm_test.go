package scenario

import (
	"context"
	"strings"
	"testing"
)

func TestNormalize(t *testing.T) {
	for line, want := range map[string]string{
		"-A -t 10.96.0.101:80 -s rr":                                         "-A -t 10.96.0.101:80 -s rr",
		"--add-service --tcp-service 10.96.0.101:80 --scheduler rr":          "-A -t 10.96.0.101:80 -s rr",
		"-A -t 10.96.0.101:80":                                               "-A -t 10.96.0.101:80 -s wlc",
		"-A -t [fd00:96:0::101]:80 -s rr -M 128":                             "-A -t [fd00:96::101]:80 -s rr",
		"-A -u 10.0.0.1:53 -s rr -o":                                         "-A -u 10.0.0.1:53 -s rr -o",
		"-A --sctp-service 10.0.0.1:85 -s wlc":                               "-A --sctp-service 10.0.0.1:85 -s wlc",
		"-A -t 10.0.0.1:81 -s sh -b flag-2,flag-1 -p 600 -M 255.255.255.255": "-A -t 10.0.0.1:81 -s sh -p 600 -b sh-fallback,sh-port",
		"-A -t 10.0.0.1:81 -s rr -b flag-1":                                  "-A -t 10.0.0.1:81 -s rr -b flag-1",
		"-A -t 10.0.0.1:81 -s rr -p":                                         "-A -t 10.0.0.1:81 -s rr -p 300",
		"-A -t 10.0.0.1:81 -p -s rr -M 255.255.255.0 --pe sip":               "-A -t 10.0.0.1:81 -s rr -p 300 -M 255.255.255.0 --pe sip",
		"-A -f 8 -6 -s rr":                                                   "-A -f 8 -6 -s rr",
		"-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 1":                   "-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 1",
		"-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m":                        "-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 1",
		"-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 0 -x 0 -y 0":         "-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 0",
		"-a -t 10.0.0.1:80 -r 10.1.0.4:80 -i -w 3 --tun-type ipip":           "-a -t 10.0.0.1:80 -r 10.1.0.4:80 -i -w 3",
		"-a -f 7 -r 10.1.0.4:80 -g -w 3 -x 9":                                "-a -f 7 -r 10.1.0.4:80 -g -w 3 -x 9",
	} {
		if have, err := normalize(line); err != nil || have != want {
			t.Errorf("%s\nwant %s\nhave %s, %v", line, want, have, err)
		}
	}
	for _, line := range []string{
		"", "-D -t 10.0.0.1:80", "-A", "-A -t", "-A -t host:80 -s rr", "-A -t 10.0.0.1:80 -r 10.0.0.2:80", "-a -t 10.0.0.1:80",
		"-A -t 10.0.0.1:80 --nonsense",
	} {
		if have, err := normalize(line); err == nil {
			t.Errorf("%q was taken as %q", line, have)
		}
	}
}

// tableOfNode1 is what ipvsadm -Sn prints on the node of these tests.
const tableOfNode1 = `-A -t 10.96.0.1:443 -s rr
-a -t 10.96.0.1:443 -r 192.0.2.11:6443 -m -w 1
-A -t 10.96.0.101:80 -s rr
-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 1 --tun-type ipip
`

func TestVirtualServers(t *testing.T) {
	const web, a1 = `"-A -t 10.96.0.101:80 -s rr"`, `"-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 1"`
	for _, test := range []struct{ expect, want string }{
		{"has: [" + web + ", " + a1 + "]", ""},
		{`has: ["-A -t ${cluster1:80} -s rr"]`, ""},
		{`has: ["-A -t 10.96.0.102:80 -s rr"]`, `want "-A -t 10.96.0.102:80 -s rr", saw -A -t 10.96.0.1:443 -s rr;`},
		{`has: ["-A -t 10.96.0.101:80 -s sh"]`, "want"},
		{"lacks: [" + web + "]", `want no "-A -t 10.96.0.101:80 -s rr"`},
		{`lacks: ["-A -t 10.96.0.102:80 -s rr"]`, ""},
		{"exactly: [" + a1 + ", " + web + "]", ""},
		{"exactly: [" + web + "]", `"-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 1" is too many`},
		{"exactly: [" + web + ", " + a1 + `, "-A -f 7 -s rr"]`, `"-A -f 7 -s rr" is missing`},
		{"exactly: []", "is too many"},
	} {
		err := tried(t, "- virtual-servers: {on: node1, "+test.expect+"}", func(line string) string {
			if line == "ipvsadm -Sn" {
				return tableOfNode1
			}
			return "unexpected command " + line
		})
		want(t, test.expect, test.want, err)
	}
}

func TestAddresses(t *testing.T) {
	const output = `3: kube-ipvs0    inet 10.96.0.101/32 scope global kube-ipvs0\       valid_lft forever
3: kube-ipvs0    inet6 fd00:96::101/128 scope global \       valid_lft forever preferred_lft forever
3: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN mode DEFAULT group default qlen 1000
`
	for _, test := range []struct{ expect, output, want string }{
		{`has: ["${cluster1}", "fd00:96:0::101"]`, output, ""},
		{`has: ["${cluster2}"]`, output, `want "10.96.0.102", saw 10.96.0.101, fd00:96::101`},
		{`lacks: ["${cluster2}"]`, output, ""},
		{`lacks: ["${cluster1}"]`, output, `want no "10.96.0.101"`},
		{`lacks: ["${cluster1}"]`, "", "want a dummy device, saw none"},
		{`lacks: ["${cluster1}"]`, strings.SplitAfter(output, "\n")[2], ""},
		{`has: ["${cluster1}"]`, strings.SplitAfter(output, "\n")[2], "saw none"},
	} {
		err := tried(t, "- addresses: {on: node1, "+test.expect+"}", func(string) string { return test.output })
		want(t, test.expect, test.want, err)
	}
}

// tried reads one checking step and tries it once in a world whose commands print what a function says.
func tried(t *testing.T, text string, prints func(line string) string) error {
	t.Helper()
	f, err := Parse("x.yaml", []byte(whole(text)))
	if err != nil {
		t.Fatal(err)
	}
	w := &fakeWorld{command: func(_, line string) (string, int, error) { return prints(line), 0, nil }}
	return f.scripts[IPv4].steps[0].check.try(context.Background(), newSession(w, IPv4, 1))
}

// want checks that an error is a failure that says something, or that there is none.
func want(t *testing.T, what, want string, err error) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && (!isFailure(err) || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: want %q, have %v", what, want, err)
	}
}
