// Recording: one request that is answered when the time is over or the recorder is told to finish, and given up by closing it.

class Recording {
  /** `recorded`: what to do with the profile. */
  constructor(form, modes, recorded) {
    Object.assign(this, { form, recorded, running: null, session: null });
    const { mode } = form.elements;
    mode.replaceChildren(...modes.map(name => Object.assign(element('option', MODES[name] ?? name), { value: name })));
    mode.onchange = () => this.fit();
    form.onsubmit = event => { event.preventDefault(); this.start(); };
    form.querySelector('button.cancel').onclick = () => this.running?.abort();
    form.querySelector('button.finish').onclick = () => this.finish();
    this.progress = form.querySelector('progress');
    this.said = form.querySelector('output');
    form.hidden = false;
    this.fit();
  }

  /** Only what the mode takes is asked for. */
  fit() {
    const { mode, seconds, hz, interval } = this.form.elements;
    const time = ['cpu', 'wall', 'offcpu'].includes(mode.value), memory = ['allocs', 'heap'].includes(mode.value);
    hz.disabled = !time;
    interval.disabled = !memory;
    seconds.disabled = !time && !memory;
    seconds.required = time;
    seconds.placeholder = mode.value === 'allocs' ? 'since the start' : mode.value === 'heap' ? 'live now' : '';
    for (const input of [hz, interval, seconds]) input.parentElement.hidden = input.disabled;
  }

  async start() {
    const { mode, seconds, hz, interval, thread } = this.form.elements, asked = new URLSearchParams({ format: 'raw' });
    this.session = Array.from(crypto.getRandomValues(new Uint8Array(8)), byte => byte.toString(16).padStart(2, '0')).join('');
    asked.set('session', this.session);
    for (const input of [seconds, hz, interval, thread]) if (!input.disabled && input.value.trim()) asked.set(input.name, input.value.trim());
    this.began = performance.now();
    this.length = seconds.disabled ? 0 : Number(seconds.value) * 1000;
    this.running = new AbortController();
    this.show(true);
    const clock = setInterval(() => this.tick(), 100);
    this.tick();
    try {
      const answer = await ask(`debug/pprof/${mode.value}?${asked}`, { signal: this.running.signal });
      const bytes = await answer.blob();
      const time = new Date().toLocaleTimeString();
      await this.recorded({ name: `${mode.value}, ${this.length ? `${Number((this.length / 1000).toFixed(1))} s, ` : ''}${time}`, bytes });
      this.said.textContent = '';
    } catch (error) {
      this.said.textContent = this.running.signal.aborted ? 'Cancelled; nothing was recorded.' : `Cannot record: ${error.message}`;
    } finally {
      clearInterval(clock);
      this.running = null;
      this.show(false);
    }
  }

  /** Ends the recording before its time, with what it has. */
  async finish() {
    try {
      await ask(`debug/pprof/finish?session=${this.session}`, { method: 'POST' });
      this.length = Math.min(this.length, performance.now() - this.began);
      this.tick();
    } catch (error) {
      this.said.textContent = `Cannot finish: ${error.message}`;
    }
  }

  tick() {
    const passed = performance.now() - this.began;
    if (this.length) this.progress.value = Math.min(1, passed / this.length);
    else this.progress.removeAttribute('value');
    const left = Math.ceil((this.length - passed) / 1000);
    this.form.querySelector('button.finish').hidden = left <= 0;
    this.said.textContent = left > 0 ? `Recording, ${left} s left` : 'Looking up names';
  }

  show(running) {
    this.form.querySelector('button.start').hidden = running;
    this.form.querySelector('button.cancel').hidden = !running;
    if (!running) this.form.querySelector('button.finish').hidden = true;
    this.progress.hidden = !running;
  }
}

const MODES = {
  cpu: 'CPU time', wall: 'Elapsed time', offcpu: 'Blocked time', allocs: 'Allocations', heap: 'Live allocations', threads: 'Threads, once',
};
