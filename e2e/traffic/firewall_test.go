package traffic

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic/traffictest"
)

// command runs a command in a namespace of the test.
func command(t *testing.T, in Namespace, line string) {
	t.Helper()
	words := strings.Fields(line)
	err := in.Do(func() error {
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput() // A child is where its parent's thread is.
		if err != nil {
			t.Logf("%s: %s", line, out)
		}
		return err
	})
	if err != nil {
		t.Skipf("this kernel cannot do that: %v", err)
	}
}

// TestCallThroughAFirewall meets rules that drop and reject, once where the caller is and once where it calls.
func TestCallThroughAFirewall(t *testing.T) {
	for _, chain := range []string{"OUTPUT", "INPUT"} {
		in := traffictest.New(t)
		server := serve(t, in)
		for _, tool := range []string{"iptables", "ip6tables"} {
			for _, proto := range []Proto{TCP, UDP, SCTP} {
				command(t, in, tool+" -A "+chain+" -p "+string(proto)+" --dport 7400 -j DROP")
				command(t, in, tool+" -A "+chain+" -p "+string(proto)+" --dport 7401 -j REJECT")
			}
			command(t, in, tool+" -A "+chain+" -p tcp --dport 7402 -j REJECT --reject-with tcp-reset")
		}
		client := NewClient(in)
		for _, test := range []struct {
			proto Proto
			port  string
			want  Result
		}{
			{TCP, ":7400", Timeout}, {UDP, ":7400", Timeout}, {SCTP, ":7400", Timeout},
			{TCP, ":7401", Refused}, {UDP, ":7401", Refused}, {SCTP, ":7401", Refused},
			{TCP, ":7402", Refused},
		} {
			for _, host := range []string{"127.0.0.1", "[::1]"} {
				t.Run(chain+" "+string(test.proto)+" "+host+test.port, func(t *testing.T) {
					needSCTP(t, server, test.proto)
					got, err := client.Call(target(test.proto, host+test.port))
					if err != nil || got.Result != test.want {
						t.Errorf("want %s, have %v, %v", test.want, got, err)
					}
					if test.want == Refused && got.Connect > 1500*time.Millisecond {
						t.Errorf("refused after %s", got.Connect)
					}
				})
			}
		}
	}
}
