#include "textflag.h"

// func prefetch(entry unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ       entry+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET
