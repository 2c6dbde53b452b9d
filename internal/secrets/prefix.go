package secrets

import "strings"

// prefixes are how vendors begin their tokens, the longer before the shorter.
// They say what kind of token it is and nothing of its value, so that a
// placeholder keeps them: some clients look at nothing else.
var prefixes = []string{
	"sk-ant-api03-", "sk-ant-admin01-", "sk-ant-oat01-", "sk-ant-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "sk-",
	"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glsa_",
	"npm_", "pypi-", "rubygems_", "dckr_pat_", "dckr_oat_", "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xapp-",
	"AKIA", "ASIA", "AIza", "ya29.", "GOCSPX-", "hf_", "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "tvly-", "key-",
	"dop_v1_", "doo_v1_", "SG.", "shpat_", "shpss_", "lin_api_", "ntn_", "secret_", "figd_", "dapi", "whsec_", "sbp_",
	"hvs.", "hvb.", "sntrys_", "sntryu_", "PMAK-", "vcp_", "eyJ",
}

// Prefix gives the vendor's prefix of a value, or "".
func Prefix(value []byte) string {
	head := string(value[:min(len(value), 24)])
	for _, p := range prefixes {
		if strings.HasPrefix(head, p) {
			return p
		}
	}
	return ""
}

// lengthClass says roughly how long a value is.
func lengthClass(n int) string {
	switch {
	case n < 32:
		return "short"
	case n < 128:
		return "token"
	case n < 4096:
		return "long"
	}
	return "document"
}
