package state

import "testing"

func TestParseAddr(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", " 010.001.000.255 ": "10.1.0.255", "::ffff:10.0.0.1": "10.0.0.1", "fd00:0::1": "fd00::1",
		"": "", "10.0.0": "", "10.0.0.256": "", "fe80::1%eth0": "", "0010.0.0.1": "", "10.0.0.": "",
	} {
		got, err := ParseAddr(text)
		if (err == nil) != (want != "") || (err == nil && got.String() != want) {
			t.Errorf("%q: want %q, got %v, %v", text, want, got, err)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		" 10.1.2.3/8 ": "10.0.0.0/8", "010.0.0.0/8": "10.0.0.0/8", "fd00::1/64": "fd00::/64", "0.0.0.0/0": "0.0.0.0/0",
		"10.0.0.0": "", "::ffff:10.0.0.0/104": "", "10.0.0.0/33": "", "": "",
	} {
		got, err := ParsePrefix(text)
		if (err == nil) != (want != "") || (err == nil && got.String() != want) {
			t.Errorf("%q: want %q, got %v, %v", text, want, got, err)
		}
	}
}
