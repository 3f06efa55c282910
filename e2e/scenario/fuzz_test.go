package scenario

import (
	"os"
	"testing"
)

// FuzzParse feeds texts that need be no scenario: each is taken or refused with a reason.
func FuzzParse(f *testing.F) {
	files, err := Find("../scenarios")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{"a: &a [*a]", "proxy: &a {b: *a}", "? {a: b}\n: c", "- !!binary x", "steps: [*x]", "<<: {name: x}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("x.yaml", text)
		if (file == nil) == (err == nil) {
			t.Errorf("have %v and %v", file, err)
		}
	})
}

// FuzzNormalize holds that a line in the one form stays as it is.
func FuzzNormalize(f *testing.F) {
	f.Add("-A -t 10.0.0.1:81 -s sh -b flag-2,flag-1 -p 600 -M 255.255.255.255")
	f.Add("-a -f 7 -r [fd00::1]:80 -g -w 3 -x 9 --tun-type gue")
	f.Fuzz(func(t *testing.T, line string) {
		once, err := normalize(line)
		if err != nil {
			return
		}
		if twice, err := normalize(once); err != nil || twice != once {
			t.Errorf("%q became %q and then %q, %v", line, once, twice, err)
		}
	})
}
