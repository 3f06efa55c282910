package world

import (
	"context"
	"fmt"
	"time"
)

// await calls check until it returns nil, or the time or ctx is over; it returns check's last error then.
func await(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := 5 * time.Millisecond
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}
