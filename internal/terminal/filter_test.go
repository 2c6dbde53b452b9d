package terminal

import (
	"bytes"
	"io"
	"math/rand"
	"strings"
	"testing"
)

const same = "\x00same"

// filterCases are what a program writes, and what the person's terminal gets
// of it. They are seeds of the fuzz tests too.
var filterCases = []struct{ name, in, want string }{
	// What programs do every day.
	{"text", "hello\r\n\tworld\b\a\x0b\x0c\x00\x7f", same},
	{"utf-8", "größe 漢字 👩‍💻 \u202e", same},
	{"latin-1", "gr\xf6\xdfe", same},
	{"colours", "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[m \x1b[4:3mcurly\x1b[0m", same},
	{"cursor and erase", "\x1b[2J\x1b[H\x1b[10;20H\x1b[K\x1b[3J\x1b7\x1b8\x1bM", same},
	{"alternate screen", "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l", same},
	{"mouse and paste", "\x1b[?1000;1002;1006h\x1b[?2004h", same},
	{"charsets", "\x1b(0lqk\x1b(B\x0e\x0f", same},
	{"device attributes", "\x1b[c\x1b[>c\x1b[=c\x1b[0c", same},
	{"status and position", "\x1b[5n\x1b[6n\x1b[?6n\x1b[?996n", same},
	{"mode query", "\x1b[?2026$p\x1b[4$p", same},
	{"kitty keyboard", "\x1b[?u\x1b[>1u\x1b[=5;1u\x1b[<u", same},
	{"modify other keys", "\x1b[>4;2m\x1b[?4m\x1b[>4n", same},
	{"synchronised update", "\x1b[?2026h\x1b[?2026l", same},
	{"synchronised update, older", "\x1bP=1s\x1b\\x\x1bP=2s\x1b\\", same},
	{"colour queries", "\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]4;1;?\x07", same},
	{"colour sets", "\x1b]4;1;rgb:ff/00/00;2;#00ff00\x07\x1b]104;1\x07\x1b]110\x07", same},
	{"link", "\x1b]8;id=1;https://example.org/a?b=c\x1b\\text\x1b]8;;\x1b\\", same},
	{"size queries", "\x1b[14t\x1b[16t\x1b[18t", same},
	{"cursor style", "\x1b[4 q\x1b[ q", same},
	{"version query", "\x1b[>q\x1b[>0q", same},
	{"soft reset", "\x1b[!p", same},
	{"full reset", "\x1bc", same},
	{"progress", "\x1b]9;4;1;50\x07\x1b]9;4;0\x07", same},
	{"prompt marks", "\x1b]133;A\x07\x1b]133;D;127\x07", same},
	{"sixel", "\x1bP0;1;0q\"1;1;10;10#0;2;0;0;0~~@@vv\r\n-\x1b\\after", same},
	{"image, inline", "\x1b_Ga=T,f=100,t=d,m=1;iVBORw0KGgo=\x1b\\\x1b_Gm=0;AAAA\x1b\\", same},
	{"scroll", "\x1b[2S\x1b[2T\x1b[1;5r\x1b[r", same},
	{"rectangles", "\x1b[1;1;5;5$z\x1b[1;2;3;4;1;5;6;1$v", same},

	// What steals or injects.
	{"clipboard set", "a\x1b]52;c;cm0gLXJmIC8K\x07b", "ab"},
	{"clipboard query", "a\x1b]52;c;?\x1b\\b", "ab"},
	{"clipboard, leading zeros", "a\x1b]052;c;?\x07\x1b]0000052;c;?\x07b", "ab"},
	{"clipboard, kitty", "a\x1b]5522;type=read\x07b", "ab"},
	{"clipboard through tmux", "a\x1bPtmux;\x1b\x1b]52;c;cm0=\x07\x1b\\b", "a\x1b\\b"},
	{"clipboard through screen", "a\x1bP\x1b]52;c;cm0=\x07\x1b\\b", "a\x1b\\b"},
	{"title report", "a\x1b[21t\x1b[20tb\x1b[0021t", "ab"},
	{"title report, private", "a\x1b[>21tb", "ab"},
	{"answerback", "a\x05b", "ab"},
	{"answerback within a sequence", "\x1b[3\x051m", "\x1b[31m"},
	{"DECRQSS", "a\x1bP$qm\x1b\\b", "ab"},
	{"XTGETTCAP", "a\x1bP+q544e\x1b\\b", "ab"},
	{"rxvt graphics query", "a\x1bGQb", "aQb"},
	{"display name", "a\x1b[7n\x1b[8nb", "ab"},
	{"font query", "a\x1b]50;?\x07\x1b]50;#1\x07b", "ab"},
	{"title query by number", "a\x1b]3;WM_NAME=?\x07\x1b]21;x=?\x07b", "ab"},
	{"notification with an answer", "a\x1b]99;i=;ls;:p=?;\x1b\\b", "ab"},
	{"screen checksum", "a\x1b[1;1;1;1;1;1*yb", "ab"},
	{"state reports", "a\x1b[1$w\x1b[1$u\x1b[&ub", "ab"},
	{"macro", "a\x1bP1;0;0!z41\x1b\\\x1b[1*zb", "ab"},

	// What changes the terminal for good, or the host.
	{"printing", "a\x1b[5i\x1b[4i\x1b[i\x1b[?5i\x1b[0ib", "ab"},
	{"printing, modes", "a\x1b[?18h\x1b[?19hb", "ab"},
	{"user keys", "a\x1bP0;1|17/6C73\x1b\\b", "ab"},
	{"soft font", "a\x1bP1;1;1{ @\x1b\\b", "ab"},
	{"resize and move", "a\x1b[8;1;1t\x1b[3;0;0t\x1b[4;1;1t\x1b[2t\x1b[9;1t\x1b[10;1t\x1b[30tb", "ab"},
	{"resize by mode", "a\x1b[?3h\x1b[?40hb\x1b[80$|\x1b[24*|", "ab"},
	{"mode among others", "\x1b[?25;2;3;7h\x1b[?2l", "\x1b[?25;7h"},
	{"mode number that wraps", "a\x1b[?65538lb", "ab"},
	{"VT52", "a\x1b[?2lb", "ab"},
	{"keyboard lock", "a\x1b[2hb\x1b[2l", "ab\x1b[2l"},
	{"logging", "a\x1b[?46hb", "ab"},
	{"coding system", "a\x1b%@\x1b%/Gb\x1b%G", "ab\x1b%G"},
	{"8-bit answers", "a\x1b Gb\x1b F\x1b[62;0\"p", "ab\x1b F"},
	{"console switch", "a\x1b[12;3]\x1b[[Ab", "aAb"},
	{"console palette", "a\x1b]P0000000b\x1b]Rc", "abc"},
	{"self test", "a\x1b[2;1yb", "ab"},
	{"title encoding", "a\x1b[>0t\x1b[>2Tb", "ab"},
	{"tmux control mode", "a\x1bP1000p%begin\x1b\\b", "ab"},
	{"APC, PM, SOS", "a\x1b_x\x1b\\\x1b^y\x1b\\\x1bXz\x1b\\b", "ab"},
	{"image from a file", "a\x1b_Ga=T,t=f;L2V0Yy9wYXNzd2Q=\x1b\\b", "ab"},
	{"image from a file, deleted", "a\x1b_Gt=t,a=T;L3RtcA==\x1b\\b", "ab"},
	{"image from shared memory", "a\x1b_Gi=1,t=s;L3g=\x1b\\b", "ab"},
	{"image, second medium", "a\x1b_Gt=d,t=f;L3g=\x1b\\b", "ab"},
	{"file transfer", "a\x1b]1337;File=name=eA==:AAAA\x07\x1b]5113;ac=send\x07b", "ab"},
	{"settings", "a\x1b]1337;CopyToClipboard=\x07\x1b]1337;CurrentDir=/x\x07b", "ab"},
	{"folder", "a\x1b]7;file://h/etc\x07\x1b]9;9;/etc\x07\x1b]633;P;Cwd=/\x07b", "ab"},
	{"command line of a shell", "a\x1b]633;E;rm -rf /\x07\x1b]133;C;cmdline=rm\x07b", "ab"},
	{"ConEmu", "a\x1b]9;7;calc\x07\x1b]9;6;macro\x07\x1b]9;12\x07b", "ab"},
	{"X property", "a\x1b]3;X=y\x07b", "ab"},
	{"unknown number", "a\x1b]31337;x\x07\x1b]X\x07\x1b]\x07b", "ab"},
	{"link to a file", "\x1b]8;;file:///etc/passwd\x1b\\text\x1b]8;;\x1b\\", "text\x1b]8;;\x1b\\"},
	{"link to a program", "\x1b]8;;x-man-page://ls\x07t\x1b]8;;\x07", "t\x1b]8;;\x07"},
	{"link without a scheme", "\x1b]8;;javascript:x\x07t\x1b]8;;\x07", "t\x1b]8;;\x07"},

	// Titles and notifications.
	{"title", "\x1b]0;work: make\x07", "\x1b[22;0t\x1b]0;work: make\x07"},
	{"title, cleaned", "\x1b]2;a\x01\u202eb\xff\u009cc\x1b\\", "\x1b[22;0t\x1b]2;abc\x1b\\"},
	{"title of screen", "\x1bkvim\x1b\\x", "\x1b[22;0t\x1bkvim\x1b\\x"},
	{"title of screen, broken off", "\x1bkvi\nm", "\nm"},
	{"title stack", "\x1b[22;2t\x1b]2;x\x07\x1b[23;2t\x1b[23;2t", "\x1b[22;0t\x1b[22;2t\x1b]2;x\x07\x1b[23;2t"},
	{"notification", "\x1b]9;done\x07\x1b]777;notify;a;b\x1b\\", same},
	{"notification, cleaned", "\x1b]9;do\x02ne\u202e\x07", "\x1b]9;done\x07"},
	{"777, other", "a\x1b]777;precmd\x07b", "ab"},

	// The person's own keyboard settings stay.
	{"kitty pops too much", "\x1b[>1u\x1b[<9u\x1b[<u", "\x1b[>1u\x1b[<1u"},

	// 8-bit forms.
	{"C1, raw", "a\x9d52;c;?\x07b\x9b5i\x90q\x9fG\x9e\x98\x9ac", "a\ufffd52;c;?\x07b\ufffd5i\ufffdq\ufffdG\ufffd\ufffd\ufffdc"},
	{"C1, encoded", "a\u009d52;c;?\x07b\u009b5i", "a\ufffd52;c;?\x07b\ufffd5i"},
	{"C1, overlong", "\xe0\x82\x9d52;c;?\x07", "\xe0\x82\ufffd52;c;?\x07"},
	{"C1, broken character", "\xe6\x9dx \xf0\x9f\x9bx", "\xe6\ufffdx \xf0\ufffd\ufffdx"},
	{"C1, within characters", "Û Ý 杛", same},
	{"other C1", "\x85\x84\x9c\u0085", same},

	// Broken sequences.
	{"cut off by ESC", "\x1b[3\x1b[31mx\x1b\x1b[my", "\x1b[31mx\x1b[my"},
	{"cut off by CAN", "\x1b[3\x18x\x1b]52;c\x18y\x1b_\x1az", "\x18x\x18y\x1az"},
	{"cut off by text", "\x1b[3é", "é"},
	{"string cut off", "\x1b]52;c;x\x1b[31my", "\x1b[31my"},
	{"control within", "\x1b[3\n1mx", "\n\x1b[31mx"},
	{"bad grammar", "a\x1b[1?5ib\x1b[ 1qc\x1b[<=1ud", "abcd"},
	{"never ends", "a\x1b]0;" + strings.Repeat("x", 3*maxString), "a"},
	{"too long", "a\x1b]0;" + strings.Repeat("x", 3*maxString) + "\x07b", "ab"},
	{"too long a control", "a\x1b[" + strings.Repeat("1;", maxControl) + "mb", "ab"},
	{"sixel cut off", "\x1bPq~~\x1b[31mx", "\x1bPq~~\x1b\\\x1b[31mx"},
	{"sixel with a bell", "\x1bPq~\x07~\xff\x1b\\", "\x1bPq~~\x1b\\"},
	{"sixel ended by CAN", "\x1bPq~\x18x", "\x1bPq~\x1b\\\x18x"},
}

func run(t testing.TB, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	f := NewFilter(&out)
	for _, p := range pieces {
		n, err := io.WriteString(f, p)
		if n != len(p) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", p, n, err)
		}
	}
	return out.String()
}

func TestFilter(t *testing.T) {
	for _, c := range filterCases {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if want == same {
				want = c.in
			}
			if got := run(t, c.in); got != want {
				t.Errorf("%q\n gives %q\n want  %q", c.in, got, want)
			}
			bytewise := make([]string, len(c.in))
			for i := range len(c.in) {
				bytewise[i] = c.in[i : i+1]
			}
			if got := run(t, bytewise...); got != want {
				t.Errorf("byte by byte: %q", got)
			}
		})
	}
}

func TestFilterHoldsLittle(t *testing.T) {
	f := NewFilter(io.Discard)
	for _, begin := range []string{"\x1b]0;", "\x1bP", "\x1b_", "\x1b[", "\x1b(", "\x1bk", "\x1bPq", "\x1b]52;"} {
		io.WriteString(f, begin)
		for range 256 {
			io.WriteString(f, strings.Repeat(" ", 1024))
		}
		if cap(f.seq) > 2*maxString || cap(f.out) > 1<<20 {
			t.Fatalf("after %q it holds %d and %d bytes", begin, cap(f.seq), cap(f.out))
		}
		io.WriteString(f, "\x18")
	}
}

func TestFilterBoundsNotifications(t *testing.T) {
	var out bytes.Buffer
	f := NewFilter(&out)
	count := func() int { return strings.Count(out.String(), "\x1b]9;") }
	for range 10 * maxNotices {
		io.WriteString(f, "\x1b]9;hello\x07")
	}
	if count() != maxNotices {
		t.Errorf("%d notifications passed, want %d", count(), maxNotices)
	}
	f.Attended()
	io.WriteString(f, "\x1b]9;hello\x07")
	if count() != maxNotices+1 {
		t.Errorf("none passed after the person typed")
	}
}

func TestFilterLeave(t *testing.T) {
	for _, c := range []struct{ name, in, leave, reenter string }{
		{"well behaved", "\x1b[31mx\x1b[0m\x1b[?1049h\x1b[?25lx\x1b[?25h\x1b[?1049l", "", ""},
		{"killed editor", "\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b[?25l\x1b[1;20r\x1b[?1006;1000h\x1b[>1u\x1b[4 q\x1b[31m",
			"\x1b[<1u\x1b7\x1b[r\x1b8\x1b[?1l\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b>\x1b[0m\x1b[0 q",
			"\x1b[?1049h\x1b[?2004h\x1b[?1006h\x1b[?1000h\x1b[?25l\x1b[?1h\x1b[>1u\x1b=\x1b[4 q"},
		{"title", "\x1b]2;x\x07\x1b[22t", "\x1b]0;\x1b\\\x1b[23;0t\x1b[23;0t", ""},
		{"colours", "\x1b]11;#000000\x07\x1b]4;1;red\x07\x1b]12;?\x07\x1b]13;red;?;red\x07\x1b]5;1;?\x07", "\x1b]104\x1b\\\x1b]111\x1b\\\x1b]113\x1b\\\x1b]115\x1b\\", ""},
		{"link", "\x1b]8;;https://example.org\x07x", "\x1b]8;;\x1b\\", ""},
		{"progress", "\x1b]9;4;3\x07", "\x1b]9;4;0\x1b\\", ""},
		{"line drawing", "\x1b(0x", "\x1b(B\x0f", ""},
		{"saved mode", "\x1b[?1049r", "\x1b[?1049l", "\x1b[?1049h"},
		{"reset by itself", "\x1b[?1049h\x1b[31m\x1bc", "", ""},
		{"half a sequence", "x\x1b[3", "", ""},
		{"half a character", "x\xe6\x9d", "\xe6\ufffd", ""},
		{"half a picture", "\x1bPq~", "\x1b\\", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			f := NewFilter(&out)
			io.WriteString(f, c.in)
			for _, step := range []struct {
				what string
				do   func() error
				want string
			}{{"Leave", f.Leave, c.leave}, {"Leave again", f.Leave, ""}, {"Reenter", f.Reenter, c.reenter}, {"Close", f.Close, ""}} {
				out.Reset()
				if err := step.do(); err != nil {
					t.Fatal(err)
				}
				if step.what != "Close" && out.String() != step.want {
					t.Errorf("%s writes %q\nwant %q", step.what, out.String(), step.want)
				}
			}
		})
	}
}

// split cuts s at random places.
func split(s string, rnd *rand.Rand) (pieces []string) {
	for len(s) > 0 {
		n := 1 + rnd.Intn(min(len(s), 1+rnd.Intn(9)))
		pieces = append(pieces, s[:n])
		s = s[n:]
	}
	return pieces
}

func TestFilterChunking(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	alphabet := []string{"\x1b", "[", "]", "P", "_", "k", ";", "?", "5", "2", "q", "t", "i", "h", "\x07", "\\", "\x18", "\xc2", "\x9d", "\xe6", "\x9b", "é", "x", "\n", "G", "$", " "}
	for range 3000 {
		var b strings.Builder
		for range 1 + rnd.Intn(60) {
			if rnd.Intn(4) == 0 {
				b.WriteString(filterCases[rnd.Intn(len(filterCases)-12)].in)
			} else {
				b.WriteString(alphabet[rnd.Intn(len(alphabet))])
			}
		}
		in := b.String()
		want := run(t, in)
		if got := run(t, split(in, rnd)...); got != want {
			t.Fatalf("%q\n in pieces %q\n at once   %q", in, got, want)
		}
	}
}

func BenchmarkFilterPlain(b *testing.B) {
	bench(b, strings.Repeat("The quick brown fox jumps over the lazy dog, again and again.\r\n", 512))
}

func BenchmarkFilterColour(b *testing.B) {
	bench(b, strings.Repeat("\x1b[32mok\x1b[0m   github.com/example/package/name\t0.123s\r\n", 512))
}

func BenchmarkFilterUTF8(b *testing.B) {
	bench(b, strings.Repeat("Die größte Überraschung: 漢字 und ж.\r\n", 512))
}

func bench(b *testing.B, text string) {
	f := NewFilter(io.Discard)
	p := []byte(text)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		f.Write(p)
	}
}
