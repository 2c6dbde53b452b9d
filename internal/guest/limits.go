package guest

// The bounds of the protocol. Both ends check each before they take memory.
const (
	MaxID       = 128       // bytes of an execution's id
	MaxArgs     = 65536     // elements of argv, and of the environment
	MaxArgBytes = 2 << 20   // bytes of argv and environment together
	MaxPath     = 4096      // bytes of a path
	MaxGroups   = 1024      // supplementary groups
	MaxRlimits  = 16        // resource limits, one for each resource Linux has
	MaxUnacked  = 1 << 20   // bytes of output that bailey-init keeps per execution
	MaxStdin    = 256 << 10 // bytes of input in flight to one execution
	MaxExecs    = 4096      // executions that bailey-init remembers, running or ended
	MaxRequests = 1024      // requests in flight on one connection
	MaxFileOps  = 64        // file requests that run at once
	MaxWatches  = 8192      // folders under one watch
	MaxDepth    = 256       // levels of folders in one listing, archive or removal

	maxChunk        = 64 << 10            // bytes of data in one frame
	maxFrameToGuest = MaxArgBytes + 1<<20 // bytes of one frame from the owner: an exec with its lengths
	maxFrameToHost  = maxChunk + 4096     // bytes of one frame from inside
	maxFrameFDs     = 3                   // descriptors with one frame
	maxText         = 1024                // bytes of a message for people
	window          = 256 << 10           // bytes a data stream may be ahead of its reader
)
