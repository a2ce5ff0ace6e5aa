"""Every special form and built-in function of the Lisp, by examples."""

import pytest

from orchestrator.programs.turns.lisp.builtins.library import BUILTINS
from orchestrator.programs.turns.lisp.forms import FORMS
from orchestrator.programs.turns.lisp.reference import builtins, forms
from orchestrator.programs.turns.outcome import Symbol
from tests.support.lisp import run, value

# Each program, and its value as the printer writes it.
EXAMPLES = r"""
(define x 5) (+ x 1)                                  => 6
(define x 1)                                          => x
(define (f a b) (* a b)) (f 6 7)                      => 42
(define (f a &rest more) (list a more)) (f 1 2 3)     => (1 (2 3))
(define (f) (define a 1) (define (g) (+ a 1)) (g)) (f) => 2
(define (f) (begin (define a 1)) a) (f)               => 1
(define x 1) (set! x (+ x 1)) x                       => 2
(let ((x 1)) (set! x 2) x)                            => 2
(define (f) (set! n (+ n 1))) (define n 1) (f) n      => 2
((lambda (x) (* x x)) 4)                              => 16
((lambda all all) 1 2)                                => (1 2)
((lambda (a &rest b) b) 1)                            => ()
(let ((a 1) (b 2)) (+ a b))                           => 3
(let ((a 1)) (let ((a 2) (b a)) (list a b)))          => (2 1)
(let () 7)                                            => 7
(let loop ((i 0) (sum 0)) (if (< i 5) (loop (+ i 1) (+ sum i)) sum)) => 10
(let* ((a 1) (b (+ a 1)) (a (* b 10))) (list a b))    => (20 2)
(let* () 1)                                           => 1
(letrec ((f (lambda (n) (if (= n 0) 'f (g (- n 1))))) (g (lambda (n) (f n)))) (f 9)) => f
(if #t 1 2)                                           => 1
(if nil 1 2)                                          => 2
(if #f 1)                                             => nil
(if 0 "yes" "no")                                     => "yes"
(if '() "yes" "no")                                   => "yes"
(cond (#f 1) ((= 1 1) 2) (else 3))                    => 2
(cond (#f 1) (else 2 3))                              => 3
(cond (#f 1))                                         => nil
(cond (#f 1) (7))                                     => 7
(cond ((assoc 'b '((a 1) (b 2))) => cadr) (else 0))   => 2
(cond (#f => car) (else 0))                           => 0
(case (+ 1 1) ((1 2) 'low) ((3) 'high) (else 'none))  => low
(case "b" (("a") 1) (else 2))                         => 2
(case 'x ((y) 1))                                     => nil
(case 1 ((1.0) 'decimal) ((#t) 'true) ((1) 'one))     => one
(case '(1) ((1) 1) ((nil) 2) (else 3))                => 3
(when #t 1 2)                                         => 2
(when #f 1)                                           => nil
(unless #f 1 2)                                       => 2
(unless 1 2)                                          => nil
(begin 1 2 3)                                         => 3
(begin)                                               => nil
(and)                                                 => #t
(and 1 2)                                             => 2
(and 1 nil (error "not reached"))                     => nil
(or)                                                  => #f
(or #f nil 3 (error "not reached"))                   => 3
(let ((f (lambda (x) #f))) (or (f 1) (and (f 1) 2) 5)) => 5
(do ((i 0 (+ i 1)) (all '() (cons i all))) ((= i 3) all)) => (2 1 0)
(do ((i 0 (+ i 1)) (s "")) ((= i 2) s) (set! s (string-append s "x"))) => "xx"
'(a "b" 1 (c))                                        => (a "b" 1 (c))
(quote x)                                             => x
''x                                                   => 'x
`(1 ,(+ 1 1) ,@(list 3 4) 5)                          => (1 2 3 4 5)
`(1 (2 ,(+ 1 2)))                                     => (1 (2 3))
`(a `(b ,(c ,(+ 1 2))))                               => (a `(b ,(c 3)))
`(,@'(1 2) ,@'() ,@(list 3))                          => (1 2 3)
`x                                                    => x
`,(+ 1 2)                                             => 3
(let ((x 1)) `(x ,x))                                 => (x 1)
()                                                    => ()
(with-budget ((tokens 10) (iterations (+ 1 1))) 1 2)  => 2
(with-budget () (define a 3) a)                       => 3
(subeval "(define a 2) (* a 3)")                      => 6
(subeval '(+ 1 2) ((allow world.read)))               => 3
(define o '((deny world.write))) (subeval '(+ 1 2) o) => 3
(define x 2) (eval '(* x 3))                          => 6
(eval (list '+ 1 2))                                  => 3
(memo "key" (+ 1 2))                                  => 3
(+ 1 2 3)                                             => 6
(+)                                                   => 0
(+ 1 0.5)                                             => 1.5
(- 5)                                                 => -5
(- 5 2 1)                                             => 2
(*)                                                   => 1
(* 2 3.0)                                             => 6.0
(/ 6 3)                                               => 2
(/ 1 4)                                               => 0.25
(/ 2)                                                 => 0.5
(quotient -7 2)                                       => -3
(remainder -7 2)                                      => -1
(modulo -7 2)                                         => 1
(abs -2)                                              => 2
(min 3 1 2)                                           => 1
(max 3 1 2)                                           => 3
(list (round 2.5) (round 3.5) (floor -1.5) (ceiling 1.2) (truncate -1.7)) => (2 4 -2 2 -1)
(list (expt 2 10) (expt 2 -1) (expt 2.0 2))           => (1024 0.5 4.0)
(list (sqrt 9) (sqrt 2.25))                           => (3 1.5)
(number->string 12)                                   => "12"
(list (string->number "-1.5e3") (string->number "x")) => (-1500.0 #f)
(list (= 1 1.0 1) (= 1 2))                            => (#t #f)
(list (< 1 2 3) (< 1 1) (> 3 2) (<= 1 1 2) (>= 2 2 3)) => (#t #f #t #t #f)
(list (zero? 0) (positive? 1) (negative? 1) (even? 4) (odd? -3)) => (#t #t #f #t #t)
(list (not nil) (not 0))                              => (#t #f)
(list (eq? 'a 'a) (eq? '(1) '(1)) (eqv? 1 1))         => (#t #f #t)
(list (equal? '(1 (2)) '(1 (2))) (equal? 1 1.0) (equal? "a" 'a)) => (#t #f #f)
(map null? (list '() nil "" 0))                       => (#t #t #f #f)
(map empty? (list '() nil "" 0 '(1)))                 => (#t #t #t #f #f)
(list (nil? nil) (boolean? #f) (number? 1.5) (integer? 1.5)) => (#t #t #t #f)
(list (string? "a") (symbol? 'a) (string? 'a) (list? '()) (pair? '())) => (#t #t #f #t #f)
(map procedure? (list car map world.read (lambda (x) x) 'car)) => (#t #t #t #t #f)
(list (outcome? (ok 1)) (outcome? 1))                 => (#t #f)
(list 1 "a" 'b)                                       => (1 "a" b)
(cons 1 '(2))                                         => (1 2)
(list (car '(1 2)) (first '(1 2)) (cdr '(1 2)) (rest '(1 2))) => (1 1 (2) (2))
(map (lambda (f) (f '(1 2 3 4))) (list second third cadr caddr last)) => (2 3 2 3 4)
(list (nth 1 '(a b)) (list-ref '(a b) 0))             => (b a)
(length '(1 2 3))                                     => 3
(append '(1) '() '(2 3))                              => (1 2 3)
(append)                                              => ()
(reverse '(1 2 3))                                    => (3 2 1)
(list (take 2 '(1 2 3)) (take 9 '(1)) (drop 2 '(1 2 3)) (drop 9 '(1))) => ((1 2) (1) (3) ())
(list (range 3) (range 1 3) (range 3 0 -1) (range 0)) => ((0 1 2) (1 2) (3 2 1) ())
(list (member 2 '(1 2 3)) (member 4 '(1)))            => ((2 3) #f)
(list (index-of 3 '(1 2 3)) (index-of 4 '(1)))        => (2 #f)
(list (assoc "b" '(("a" 1) ("b" 2))) (assoc 1 '()))   => (("b" 2) #f)
(zip '(1 2 3) '(a b))                                 => ((1 a) (2 b))
(unique '(1 1.0 1 a "a" a (1) (1) #t nil nil))        => (1 1.0 a "a" (1) #t nil)
(list (sort '(3 1 2)) (sort '("b" "a")) (sort '(2 1.5))) => ((1 2 3) ("a" "b") (1.5 2))
(sort '((2 a) (1 b) (2 c) (1 d)) (lambda (x y) (< (car x) (car y)))) => ((1 b) (1 d) (2 a) (2 c))
(sort '() <)                                          => ()
(string-append "a" "" "b")                            => "ab"
(string-length "aé")                                  => 2
(list (substring "hello" 1 3) (substring "hello" 2))  => ("el" "llo")
(list (string-split "a,b,,c" ",") (string-split " a  b ")) => (("a" "b" "" "c") ("a" "b"))
(list (string-join '("a" b) "-") (string-join '()))   => ("a-b" "")
(list (string-contains? "hello" "ell") (string-contains? "hello" "x")) => (#t #f)
(list (string-index "hello" "l") (string-index "a" "b")) => (2 #f)
(list (starts-with? "abc" "ab") (ends-with? "abc" "ab")) => (#t #f)
(list (string=? "a" "a") (string<? "a" "b"))          => (#t #t)
(list (upcase "aß") (downcase "AB") (trim "\n a "))   => ("ASS" "ab" "a")
(replace "aXbX" "X" "--")                             => "a--b--"
(lines "a\nb\n")                                      => ("a" "b")
(list (string->symbol "a b") (symbol->string 'x))     => (|a b| "x")
(format "~a ~s~%~~" "x" "y")                          => "x \"y\"\n~"
(get '((a 1) (b 2)) 'b)                               => 2
(list (get '((a 1)) "a") (get '() 'x) (get '() 'x 5)) => (1 nil 5)
(list (has? '((a nil)) 'a) (has? '() 'a))             => (#t #f)
(list (put '((a 1) (b 2)) "a" 3) (put '() 'x 1))      => (((a 3) (b 2)) ((x 1)))
(list (remove-key '((a 1) (b 2)) 'a) (remove-key '() 'a)) => (((b 2)) ())
(list (keys '((a 1) (b 2))) (values '((a 1) (b 2))))  => ((a b) (1 2))
(json-parse "{\"a\": [1, -2.5e1, true, null, {}]}")   => ((a (1 -25.0 #t nil ())))
(json-parse "{\"b c\": \"\\u00e9\\ud83d\\ude00\"}")   => ((|b c| "é😀"))
(json-stringify '((a (1 2.5 #t nil)) (b (("x")))))    => "{\"a\":[1,2.5,true,null],\"b\":[[\"x\"]]}"
(ok 1)                                                => #outcome(ok 1)
(proposed "x")                                        => #outcome(proposed "x" ())
(nonconverged 1 2 'budget)                            => #outcome(nonconverged 1 2 "budget")
(cycle 1 2 '("a" "b"))                                => #outcome(cycle 1 2 ("a" "b"))
(needs 'needs-evidence "log" '(1))                    => #outcome(needs "needs-evidence" "log" (1))
(outcome-tag (ok 1))                                  => ok
(list (outcome-value (ok 1)) (outcome-value (needs 'needs-approval "x"))) => (1 nil)
(outcome-member (nonconverged 1 2 'budget) 'reason)   => "budget"
(outcome-member #outcome(cycle 1 2 ()) 'cycle-length) => 2
(map (lambda (x) (* x x)) '(1 2 3))                   => (1 4 9)
(map + '(1 2) '(10 20 30))                            => (11 22)
(map world.read '("a" "b"))                           => ("text of a" "text of b")
(let ((n 0)) (for-each (lambda (x) (set! n (+ n x))) '(1 2)) n) => 3
(filter odd? '(1 2 3))                                => (1 3)
(list (find even? '(1 2 3)) (find even? '(1)))        => (2 nil)
(list (any? even? '(1 2)) (any? even? '()) (all? even? '(2)) (all? even? '(1))) => (#t #f #t #f)
(fold (lambda (xs x) (cons x xs)) '() '(1 2))         => (2 1)
(list (reduce + '(1 2 3)) (reduce + 10 '(1)) (reduce max '(7))) => (6 11 7)
(list (apply + '(1 2)) (apply list 1 2 '(3)))         => (3 (1 2 3))
(fixpoint (lambda (x) (quotient x 2)) 100 10)         => 0
(outcome-member (fixpoint (lambda (x) (- x)) 1 9) 'cycle-length) => 2
(outcome-member (fixpoint (lambda (x) (+ x 1)) 1 9) 'value) => 10
(let ((list (lambda (x) (* 2 x)))) (list 4))          => 8
#| a #| nested |# comment |# 1 ; more                 => 1
"""


@pytest.mark.parametrize("example", EXAMPLES.strip().splitlines())
def test_examples(example: str) -> None:
    program, _, expected = example.rpartition("=> ")
    assert value(f'(format "~s" (begin {program}\n))') == expected


def test_every_form_and_function_has_an_example() -> None:
    words = set(EXAMPLES.replace("(", " ").replace(")", " ").split())
    marked = {"quasiquote", "unquote", "unquote-splicing"}
    elsewhere = {"error", "display", "print", "newline"}
    assert (FORMS.keys() | BUILTINS.keys()) - words <= marked | elsewhere


def test_descriptions() -> None:
    for each in (*forms(), *builtins()):
        assert each.signature.startswith(f"({each.name}")
        assert len(each.doc) < 100
        assert each.doc.endswith((".", "~~."))


def test_output() -> None:
    program = '(display "a" \'b 1.5) (newline) (print "x" \'("y" 2) car)'
    assert run(program).program.output == 'ab1.5\nx ("y" 2) #<function car>\n'


def test_a_function_as_the_result_is_its_name() -> None:
    assert value("(lambda (x) x)") == Symbol("#<function lambda>")
    assert value("(define (f) 1) f") == Symbol("#<function f>")
    assert value("world.read") == Symbol("#<function world.read>")
