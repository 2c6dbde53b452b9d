package ca

import (
	"encoding/asn1"
	"slices"
	"strconv"
)

// JavaStore makes a trust store of the certificates of a bundle: PKCS #12
// (RFC 7292) without a password, since Java opens its cacerts file with none
// and would see nothing in an encrypted one. Runtimes since 8u301 read it. Each
// certificate has the attribute by which Java trusts it for everything, and an
// alias of its own: of one alias Java keeps one certificate.
//
// It is put together here, and the certificates are not parsed: a sandbox waits
// for it.
func JavaStore(bundle []byte) []byte {
	attribute := der(tagSequence, identifier(2, 16, 840, 1, 113894, 746875, 1, 1), der(tagSet, identifier(2, 5, 29, 37, 0)))
	friendly := identifier(1, 2, 840, 113549, 1, 9, 20)
	bag, x509Certificate := identifier(1, 2, 840, 113549, 1, 12, 10, 1, 3), identifier(1, 2, 840, 113549, 1, 9, 22, 1)
	bags := make([]byte, headroom, headroom+len(bundle)+len(bundle)/8)
	n := 0
	for b := range blocks(bundle) {
		if !isCertificate(b.der) {
			continue // one that Java cannot read would cost it all others
		}
		name := der(tagSequence, friendly, der(tagSet, der(tagBMPString, utf16("bailey-"+strconv.Itoa(n)))))
		attributes := der(tagSet, attribute, name) // sorted (X.690, 11.6): it is the shorter one
		inner := len(b.der) + length(len(b.der))
		value := len(x509Certificate) + inner + length(inner)
		whole := value + length(value)
		bags = appendHead(bags, tagSequence, len(bag)+whole+length(whole)+len(attributes))
		bags = append(bags, bag...)
		bags = appendHead(bags, tagExplicit, whole)
		bags = appendHead(bags, tagSequence, value)
		bags = append(bags, x509Certificate...)
		bags = appendHead(bags, tagExplicit, inner)
		bags = appendHead(bags, tagOctets, len(b.der))
		bags = append(bags, b.der...)
		bags = append(bags, attributes...)
		n++
	}
	// What the bags are in is written before them, from the inside out.
	data := identifier(1, 2, 840, 113549, 1, 7, 1)
	start := headroom
	before := func(head []byte) { start -= copy(bags[start-len(head):start], head) }
	wrap := func(tag byte) { before(appendHead(nil, tag, len(bags)-start)) }
	content := func() {
		wrap(tagOctets)
		wrap(tagExplicit)
		before(data)
		wrap(tagSequence)
	}
	wrap(tagSequence)
	content()
	wrap(tagSequence)
	content()
	before([]byte{tagInteger, 1, 3})
	wrap(tagSequence)
	return bags[start:]
}

// headroom is more than what the bags are in takes before them.
const headroom = 96

// isCertificate looks at the outer form of a certificate (RFC 5280, 4.1), which
// keeps what is something else out, and serial numbers below 0.
func isCertificate(text []byte) bool {
	var outer, signed struct{ A, B, C asn1.RawValue }
	rest, err := asn1.Unmarshal(text, &outer)
	if err != nil || len(rest) > 0 || outer.A.Tag != asn1.TagSequence || outer.B.Tag != asn1.TagSequence || outer.C.Tag != asn1.TagBitString {
		return false
	}
	inner := outer.A.Bytes
	if len(inner) > 0 && inner[0] == tagExplicit { // version
		var version asn1.RawValue
		if inner, err = asn1.Unmarshal(inner, &version); err != nil {
			return false
		}
	}
	for _, field := range []*asn1.RawValue{&signed.A, &signed.B, &signed.C} {
		if inner, err = asn1.Unmarshal(inner, field); err != nil {
			return false
		}
	}
	serial := signed.A
	return serial.Tag == asn1.TagInteger && len(serial.Bytes) > 0 && serial.Bytes[0] < 0x80 && signed.B.Tag == asn1.TagSequence && signed.C.Tag == asn1.TagSequence
}

// Tags of DER, with the bit of what is made of parts (X.690).
const (
	tagInteger   = 0x02
	tagOctets    = 0x04
	tagBMPString = 0x1e
	tagSequence  = 0x30
	tagSet       = 0x31
	tagExplicit  = 0xa0 // context, number 0
)

// der puts parts behind a tag and their length.
func der(tag byte, parts ...[]byte) []byte {
	content := slices.Concat(parts...)
	return append(appendHead(nil, tag, len(content)), content...)
}

// appendHead appends a tag and the length of what is to follow.
func appendHead(out []byte, tag byte, size int) []byte {
	out = append(out, tag)
	if size < 1<<7 {
		return append(out, byte(size))
	}
	bytes := length(size) - 2
	out = append(out, 0x80|byte(bytes))
	for bytes--; bytes >= 0; bytes-- {
		out = append(out, byte(size>>(8*bytes)))
	}
	return out
}

// length says how many bytes appendHead appends.
func length(size int) (n int) {
	n = 2
	for rest := size; size >= 1<<7 && rest > 0; rest >>= 8 {
		n++
	}
	return n
}

func identifier(id ...int) []byte {
	b, err := asn1.Marshal(asn1.ObjectIdentifier(id))
	if err != nil {
		panic(err) // they are ours
	}
	return b
}

// utf16 gives ASCII as a BMPString has it.
func utf16(s string) []byte {
	out := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		out = append(out, 0, s[i])
	}
	return out
}
