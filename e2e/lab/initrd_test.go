package lab

import (
	"bytes"
	"testing"
)

func TestCpioEntryIsPadded(t *testing.T) {
	var archive bytes.Buffer
	cpioEntry(&archive, "init", 0o100755, []byte("hello"))
	cpioEntry(&archive, "TRAILER!!!", 0, nil)
	want := "070701" + // magic
		"00000001" + "000081ED" + "00000000" + "00000000" + "00000001" + "00000000" + // inode to mtime
		"00000005" + "00000000" + "00000000" + "00000000" + "00000000" + // size and devices
		"00000005" + "00000000" + // length of the name, checksum
		"init\x00" + "\x00" + "hello" + "\x00\x00\x00"
	if got := archive.Bytes()[:len(want)]; string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if next := archive.Bytes()[len(want):]; !bytes.HasPrefix(next, []byte("070701")) {
		t.Errorf("the next entry begins with %q", next[:6])
	}
}
