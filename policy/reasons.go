package policy

// The reasons of decisions. They are part of the API: added to, never renamed.
const (
	ReasonRule          = "rule"            // a rule says so
	ReasonGranted       = "granted"         // a rule asks, and a person has said yes for the session
	ReasonLaterStage    = "later_stage"     // nothing forbids it yet
	ReasonNoPolicy      = "no_policy"       // there is no policy
	ReasonNoRule        = "no_rule"         // no rule has the host
	ReasonPort          = "port"            // rules have the host, none the port
	ReasonProtocol      = "protocol"        // rules have host and port, none what is spoken there
	ReasonSecret        = "secret"          // the rule holds only with a bound secret, and there is none
	ReasonMethod        = "method"          // rules have the host, none the method
	ReasonPath          = "path"            // ... none the path
	ReasonQuery         = "query"           // ... none the query
	ReasonWebSocket     = "websocket"       // ... none lets WebSockets
	ReasonCondition     = "condition"       // ... the condition does not hold
	ReasonUninspected   = "uninspected"     // a rule that denies would have to look into what is spliced
	ReasonAddress       = "literal_address" // no rule names the address; host rules never stand for one
	ReasonMetadata      = "metadata"        // a cloud's metadata service: never
	ReasonResolver      = "resolver"        // a public DNS resolver that no rule names exactly
	ReasonLimitRequests = "limit_requests"  // the rule's or the policy's number of requests is used up
	ReasonLimitUpload   = "limit_upload"    // ... its bytes up
	ReasonLimitLeak     = "limit_leak"      // ... its bytes in names, paths and queries
	ReasonInvalid       = "invalid"         // the request is none: no host, no port, no stage
)
