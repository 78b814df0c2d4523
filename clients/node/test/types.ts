// What the types allow, and what they do not. Only compiled.
import { Client, LeaseLost, Refused, now } from 'rideau';

const client = new Client(['redis://127.0.0.1:7433'], { grace: 1000, retry: { times: 3 } });

export async function all(): Promise<string> {
  const size: number = await client.lock('job', { wait: 10_000 }, async (lease) => {
    lease.signal.throwIfAborted();
    return lease.fence + lease.unit;
  });
  const lease = await client.lock('job');
  if (lease.sureUntil > now() && !lease.lost) await lease.release();
  const member = await client.take('pool', { wait: 100, flow: 'a' });
  await member.fail('broken');
  const value = await client.reserve('office', { ttl: 60_000, key: ['a', 'b'], data: Buffer.from('x') });
  const go: boolean = await client.regulate('few', {}, (slot) => slot.renew());
  const answer: string | null = await client.ask('desk', { value: 'order' }, (match) => match.otherEnded(500));
  await client.offer('desk', {}, (match) => match.done('done'));
  // @ts-expect-error A lock has no renewals.
  await lease.renew();
  // @ts-expect-error Milliseconds are a number.
  await client.lock('job', { wait: '10s' });
  try {
    await client.close();
  } catch (error) {
    if (error instanceof Refused) return `${error.reason} ${error.retryAfter ?? 0} ${error.id}`;
    if (error instanceof LeaseLost) throw error;
  }
  return value.value + size + go + answer;
}
